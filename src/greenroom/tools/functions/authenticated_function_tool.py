"""A Python function as a tool that needs a user's credential."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from greenroom.invocation.user_context import ToolContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.auth import AuthConfig, AuthCredential
from greenroom.records.base import JsonValue
from greenroom.tools.confirmation import ConfirmationPredicate
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.login.credential_provider import CredentialProvider
from greenroom.tools.tool import OnInterrupt

_PARAMETER = "credential"


class AuthenticatedFunctionTool(FunctionTool):
    """Requests a credential of the user the first time, and calls the function with one that has
    not expired.

    The function receives it as its parameter `credential` (an AuthCredential), if it has one, and else reads it with
    `tool_context.get_auth_response(auth_config)`. The credential is stored for the user's later runs.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        auth_config: AuthConfig,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
        on_interrupt: OnInterrupt = "report",
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        """Raises ToolDeclarationError if the function can't be declared to a model, and MissingExtra."""
        self._takes_credential = _PARAMETER in inspect.signature(func).parameters
        super().__init__(
            functools.partial(func, **{_PARAMETER: None}) if self._takes_credential else func,
            require_confirmation=require_confirmation,
            on_interrupt=on_interrupt,
            name=name,
            description=description,
        )
        self.auth_config = auth_config
        self._credentials = CredentialProvider(auth_config)
        self._lookups = 0

    async def _call(self, values: dict[str, Any], tool_context: ToolContext) -> JsonValue:
        credential = await self._credential(tool_context)
        if credential is None:
            return self._credentials.request(tool_context)

        tool_context.keep_for_this_run(self.auth_config, credential)
        if self._takes_credential:
            values[_PARAMETER] = credential

        return await super()._call(values, tool_context)

    async def _credential(self, tool_context: ToolContext) -> AuthCredential | None:
        """The user's credential. The last of concurrent calls closes the connections to token services, since a tool
        has no method that is called at the end of the process."""
        self._lookups += 1
        try:
            return await self._credentials.credential(tool_context)
        finally:
            self._lookups -= 1
            if self._lookups == 0:
                await self._credentials.aclose()
