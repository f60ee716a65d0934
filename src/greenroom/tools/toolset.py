"""The contract of a toolset: tools that are only known at run time."""

from __future__ import annotations

import copy
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

import msgspec

from greenroom.errors import GreenroomError, ToolError, ToolLoadingError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.auth import AuthConfig, CredentialRequest
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import OnToolsetError
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool

HeaderProvider: TypeAlias = Callable[[ReadonlyContext], Mapping[str, str] | Awaitable[Mapping[str, str]]]

_log = logging.getLogger("greenroom.tools")


class LoginRequired(ToolError):
    """The user must log in at a server before its tools can be listed or called. An agent's turn
    asks for it.
    """

    def __init__(self, server: str, request: CredentialRequest) -> None:
        super().__init__(f"The user must log in at {server} first")
        self.request = request


class ToolPredicate(Protocol):
    """Selects tools of a toolset."""

    def __call__(self, tool: BaseTool, readonly_context: ReadonlyContext | None, /) -> bool: ...


class BaseToolset(ABC):
    """A group of tools that may depend on the context.

    tool_filter: names without the prefix, or a predicate; None or an empty list selects all tools.

    tool_name_prefix: agents see each tool as `<prefix>_<name>`.
    on_error: whether a run fails when the tools can't be loaded, or logs a warning and continues
        without them; None: as the run's `RunConfig.on_toolset_error` says.
    """

    tool_filter: Sequence[str] | ToolPredicate | None = None
    tool_name_prefix: str | None = None
    on_error: OnToolsetError | None = None

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
        on_error: OnToolsetError | None = None,
    ) -> None:
        self.tool_filter = tool_filter
        self.tool_name_prefix = tool_name_prefix
        self.on_error = on_error

    @classmethod
    def from_config(cls, config: Any, config_abs_path: str) -> Self:
        """Like `BaseTool.from_config`."""
        return cls(**config)

    @abstractmethod
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools for this context, without the prefix. Called before each request to a model:
        cache slow lookups.

        Raises LoginRequired where only the server can say that the user has to log in; else see
        `get_auth_config`.
        """

    async def get_tools_with_prefix(
        self,
        readonly_context: ReadonlyContext | None = None,
    ) -> list[BaseTool]:
        """The selected tools under the names that agents see. Raises ToolLoadingError unless
        `on_error` is "warn".
        """
        try:
            tools = [t for t in await self.get_tools(readonly_context) if self.is_selected(t, readonly_context)]
        except LoginRequired:
            raise
        except Exception as error:  # a toolset may raise anything
            on_error = self.on_error or (readonly_context and readonly_context.run_config.on_toolset_error)
            if on_error == "warn":
                _log.warning(
                    "Continuing without the tools of %s",
                    type(self).__name__,
                    exc_info=error,
                )
                return []

            if isinstance(error, GreenroomError):
                raise

            raise ToolLoadingError(type(self).__name__, f"{type(error).__name__}: {error}") from error

        prefix = self.tool_name_prefix
        if prefix:
            return [_renamed(tool, f"{prefix}_{tool.name}") for tool in tools]

        return tools

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        """Edits a request to the model before the toolset's tools do."""

    def get_auth_config(self) -> AuthConfig | None:
        """The credential that `get_tools` needs, if any. The user is asked for it before
        `get_tools` is called, which finds it with `readonly_context.get_auth_response(config)`.
        """
        return None

    def is_selected(self, tool: BaseTool, readonly_context: ReadonlyContext | None) -> bool:
        """Whether `tool_filter` selects the tool."""
        if callable(self.tool_filter):
            return self.tool_filter(tool, readonly_context)
        return not self.tool_filter or tool.name in self.tool_filter

    async def close(self) -> None:
        """Releases connections and processes."""


async def provided_headers(
    provider: HeaderProvider | None,
    context: ReadonlyContext | None,
) -> Mapping[str, str]:
    """Returns the provider's headers for this context; none without one of both."""
    if provider is None or context is None:
        return {}
    given = provider(context)
    return await given if inspect.isawaitable(given) else given


def _renamed(tool: BaseTool, name: str) -> BaseTool:
    declare = tool._get_declaration  # pyright: ignore[reportPrivateUsage]

    def declare_renamed() -> FunctionDeclaration | None:
        declaration = declare()
        if declaration is None:
            return None
        return msgspec.structs.replace(declaration, name=name)

    renamed = copy.copy(tool)
    vars(renamed).update(name=name, _get_declaration=declare_renamed)

    return renamed
