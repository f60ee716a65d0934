"""A function that calls Google's APIs as a tool."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from greenroom.errors import MissingExtra
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig, GoogleCredentialsManager
from greenroom.tools.google_cloud.rest_api import GoogleApiError
from greenroom.tools.tool import OnInterrupt

_log = logging.getLogger("greenroom.tools")

_CREDENTIALS = "credentials"
_SETTINGS = "settings"


class GoogleTool(FunctionTool):
    """Passes valid credentials of `google.auth` to the function's parameter `credentials`, and tool_settings to
    `settings`; the model sees neither.

    Without credentials_config, `credentials` is None. A user without credentials is asked for a login, and the call is
    made afterwards. An exception of the function is the result `{"status": "ERROR", "error_details": …}`.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        credentials_config: BaseGoogleCredentialsConfig | None = None,
        tool_settings: object | None = None,
        on_interrupt: OnInterrupt = "report",
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        """Raises ToolDeclarationError if the function can't be declared to a model."""
        parameters = inspect.signature(func).parameters
        self._takes_credentials = _CREDENTIALS in parameters
        hidden: dict[str, Any] = {}
        if self._takes_credentials:
            hidden[_CREDENTIALS] = None
        if _SETTINGS in parameters:
            hidden[_SETTINGS] = tool_settings
        super().__init__(
            functools.partial(func, **hidden) if hidden else func,
            on_interrupt=on_interrupt,
            name=name,
            description=description,
        )
        self._manager = GoogleCredentialsManager(credentials_config) if credentials_config is not None else None

    async def _call(self, values: dict[str, Any], tool_context: ToolContext) -> JsonValue:
        try:
            if self._manager is None:
                return await super()._call(values, tool_context)
            return await self._call_with_credentials(self._manager, values, tool_context)
        except MissingExtra:
            raise
        except Exception as error:  # the edge of a tool call: as in ADK, the model gets the error as a result
            _log.info("tool %s failed: %s", self.name, error, exc_info=True)
            return error_result(error)

    async def _call_with_credentials(
        self, manager: GoogleCredentialsManager, values: dict[str, Any], tool_context: ToolContext
    ) -> JsonValue:
        """Calls once more with new credentials when Google refuses the first, which may have been revoked."""
        credentials = await manager.get_valid_credentials(tool_context)
        if credentials is None:
            return manager.request_login(tool_context)
        hidden = {_CREDENTIALS: credentials} if self._takes_credentials else {}
        try:
            return await super()._call({**values, **hidden}, tool_context)
        except GoogleApiError as error:
            if error.http_status != 401:
                raise
            renewed = await manager.renew(tool_context, credentials)
            if renewed is not None:
                return await super()._call({**values, _CREDENTIALS: renewed}, tool_context)
            if manager.users_can_log_in:
                return manager.request_login(tool_context)
            raise


def success(results: JsonValue) -> JsonObject:
    """The result of a call that ADK's tools report in this form."""
    return {"status": "SUCCESS", "results": results}


def error_result(error: Exception) -> JsonObject:
    """The result of a failed call."""
    return {"status": "ERROR", "error_details": str(error) or type(error).__name__}
