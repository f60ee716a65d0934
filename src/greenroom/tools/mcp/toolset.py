"""The tools of an MCP server."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from greenroom.errors import AgentConfigError, ToolError, ToolLoadingError
from greenroom.invocation.user_context import CallbackContext, ReadonlyContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.auth import AuthConfig, AuthCredential, AuthSchemeLike, credential_parts, to_auth_scheme
from greenroom.records.run import OnToolsetError
from greenroom.tools.confirmation import ConfirmationPredicate
from greenroom.tools.mcp.connection import ClientCallbacks, McpCaller, McpSessions, check_installed
from greenroom.tools.mcp.connection_params import (
    ConnectionParams,
    ServerCommand,
    SseConnectionParams,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
    describe,
    to_connection_params,
)
from greenroom.tools.mcp.progress import Progress, ProgressFactory
from greenroom.tools.mcp.resources import LoadMcpResourceTool, read_resource, resource_names
from greenroom.tools.mcp.server_requests import ServerRequests
from greenroom.tools.mcp.tool import McpTool, all_tools
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, HeaderProvider, LoginRequired, ToolPredicate, provided_headers

if TYPE_CHECKING:
    from greenroom.tools.mcp.login import McpLogin

__all__ = [  # what files may name beside the toolset
    "McpToolset",
    "SseConnectionParams",
    "StdioConnectionParams",
    "StdioServerParameters",
    "StreamableHTTPConnectionParams",
]

_MAX_LISTS = 64
_RESERVED = frozenset(
    {
        "adk_request_confirmation", "adk_request_credential", "adk_request_input", "finish_task", "set_model_response",
        "transfer_to_agent",
    }
)  # fmt: skip

_log = logging.getLogger("greenroom.tools")


class McpToolset(BaseToolset):
    """Connects when its tools are first needed, and again after the connection was lost.

    tool_list_cache_ttl_seconds: how long the list of tools is cached; by default, for one run. A
        server that says that its list has changed is asked again.
    auth_scheme, auth_credential: the credential for the server; without auth_credential the user is
        asked for one, and without auth_scheme the server says where to log in: users where
        auth_credential.oauth2 has a redirect_uri, else this app.
    header_provider: additional headers, per context; each set of headers has a session of its own.
    use_mcp_resources: adds a tool by which the model reads the server's resources.
    progress_callback: called with `progress, total, message` while a tool runs, or a function that
        returns such a callback for a call; by default partial events with `mcpProgress`.
    sampling_callback, elicitation_callback: as the MCP SDK's client takes them; by default the
        run's model answers, and the run waits for a person.
    errlog: receives the standard error output of a server process.

    Raises MissingExtra, and AgentConfigError. Source of the options: ADK's MCP toolset.
    """

    def __init__(
        self,
        *,
        connection_params: ConnectionParams | ServerCommand,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
        tool_list_cache_ttl_seconds: float | None = None,
        auth_scheme: AuthSchemeLike | None = None,
        auth_credential: AuthCredential | None = None,
        credential_key: str | None = None,
        header_provider: HeaderProvider | None = None,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
        progress_callback: Progress | ProgressFactory | None = None,
        use_mcp_resources: bool = False,
        sampling_callback: Callable[..., Awaitable[Any]] | None = None,
        elicitation_callback: Callable[..., Awaitable[Any]] | None = None,
        propagate_grounding_metadata: bool = False,
        errlog: TextIO | None = None,
        on_error: OnToolsetError | None = None,
    ) -> None:
        super().__init__(
            tool_filter=tool_filter,
            tool_name_prefix=tool_name_prefix,
            on_error=on_error,
        )
        check_installed()

        if tool_list_cache_ttl_seconds is not None and tool_list_cache_ttl_seconds <= 0:
            raise AgentConfigError("McpToolset: tool_list_cache_ttl_seconds must be more than 0")

        self._params = to_connection_params(connection_params)
        self._ttl_seconds = tool_list_cache_ttl_seconds
        self._auth: AuthConfig | None = None
        self._login: McpLogin | None = None
        if auth_scheme is None and auth_credential is not None:
            self._login = _login(self._params, auth_credential, credential_key)

        if auth_scheme is not None:
            scheme = to_auth_scheme(auth_scheme)
            if scheme.type == "apiKey" and scheme.in_ not in (None, "header"):
                raise AgentConfigError("McpToolset sends API keys in headers only, not in a query or a cookie")
            self._auth = AuthConfig(
                auth_scheme=scheme, raw_auth_credential=auth_credential, credential_key=credential_key
            )

        self._header_provider = header_provider
        self._use_resources = use_mcp_resources
        self._tool_options: dict[str, Any] = {
            "require_confirmation": require_confirmation,
            "progress_callback": progress_callback,
            "propagate_grounding_metadata": propagate_grounding_metadata,
        }
        requests = ServerRequests()
        self._tool_options["open_calls"] = requests.open_calls
        callbacks = ClientCallbacks(
            sampling=sampling_callback or requests.sample,
            elicitation=elicitation_callback or requests.elicit,
            message=self._on_message,
            errlog=errlog,
        )
        self._sessions = McpSessions(self._params, callbacks)
        self._lists: OrderedDict[tuple[str, str | None], tuple[float, list[BaseTool]]] = OrderedDict()

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools in the order of their names. Raises ToolsetInitializationError, and
        ToolLoadingError.
        """
        caller = await self._caller(readonly_context)

        if self._ttl_seconds is not None or readonly_context is None:
            run = None
        else:
            run = readonly_context.invocation_id

        key = self._sessions.key(caller), run
        listed_at, tools = self._lists.get(key, (0.0, None))
        age = time.monotonic() - listed_at
        if tools is None or age > (self._ttl_seconds or float("inf")) or (run is None and self._ttl_seconds is None):
            tools = await self._list(caller)
            self._lists[key] = time.monotonic(), tools
            self._lists.move_to_end(key)
            while len(self._lists) > _MAX_LISTS:
                self._lists.popitem(last=False)

        return [tool for tool in tools if self.is_selected(tool, readonly_context)]

    def is_selected(self, tool: BaseTool, readonly_context: ReadonlyContext | None) -> bool:
        return isinstance(tool, LoadMcpResourceTool) or super().is_selected(tool, readonly_context)

    def get_auth_config(self) -> AuthConfig | None:
        """The credential for listing and calling the tools."""
        return self._auth

    async def list_resources(self, readonly_context: ReadonlyContext | None = None) -> list[str]:
        """Names of the server's resources. Raises as `get_tools` does."""
        caller = await self._caller(readonly_context)
        return list(await self._sessions.request(caller, resource_names, may_repeat=True))

    async def read_resource(
        self,
        name: str,
        readonly_context: ReadonlyContext | None = None,
    ) -> Any:
        """The contents of a resource, as parts. Raises ToolError when there is none of that name."""
        caller = await self._caller(readonly_context)
        return await self._sessions.request(caller, partial(read_resource, name), may_repeat=True)

    async def close(self) -> None:
        """Ends the sessions and the server processes. The toolset can be used again."""
        self._lists.clear()
        await self._sessions.close()

    async def _list(self, caller: McpCaller) -> list[BaseTool]:
        try:
            listed = await self._sessions.request(caller, all_tools, may_repeat=True)
        except (LoginRequired, ToolLoadingError):
            raise
        except Exception as error:  # the SDK raises errors of the protocol and of its HTTP library
            if isinstance(error, ToolError):
                reason = error.detail
            else:
                reason = f"{type(error).__name__}: {error}"
            raise ToolLoadingError(describe(self._params), reason) from error

        tools: list[BaseTool] = []
        for tool in sorted(listed, key=lambda tool: tool.name):
            if tool.name in _RESERVED:
                _log.warning(
                    "%s has a tool with the reserved name %r; it is left out", describe(self._params), tool.name
                )
                continue
            tools.append(McpTool(tool, self._sessions, self._caller, **self._tool_options))

        if self._use_resources:
            tools.append(LoadMcpResourceTool(self._sessions, self._caller))

        return tools

    async def _caller(self, context: ReadonlyContext | None) -> McpCaller:
        given = await provided_headers(self._header_provider, context)
        headers = self._sessions.headers(given, await self._credential_headers(context))
        if self._login is None or context is None:
            return McpCaller(headers)
        ctx = context.invocation_context
        return McpCaller(headers, self._login.of(ctx.services.credentials, ctx.app_name, ctx.user_id))

    async def _credential_headers(self, context: ReadonlyContext | None) -> Mapping[str, str]:
        if self._auth is None:
            return {}

        if context is not None:
            credential = context.get_auth_response(self._auth)
        else:
            credential = None

        if context is not None and credential is not None and credential.is_expired():
            credential = await _refreshed(self._auth, context)

        credential = credential or self._auth.raw_auth_credential
        if credential is not None:
            parts = credential_parts(self._auth.auth_scheme, credential)
        else:
            parts = None

        if parts is None:
            _log.warning("there is no credential yet for %s", describe(self._params))
            return {}

        return parts.headers

    async def _on_message(self, message: object) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._lists.clear()


MCPToolset = McpToolset
"""ADK's earlier spelling."""


def _login(params: ConnectionParams, own: AuthCredential, credential_key: str | None) -> McpLogin:
    if isinstance(params, StdioConnectionParams) or own.oauth2 is None:
        raise AgentConfigError("McpToolset: without auth_scheme, auth_credential.oauth2 and a URL are needed")
    if own.oauth2.redirect_uri is None and not (own.oauth2.client_id and own.oauth2.client_secret):
        raise AgentConfigError("McpToolset: auth_credential.oauth2 needs redirect_uri, or client_id and client_secret")

    # Imported here because most servers need no logins.
    from greenroom.tools.mcp.login import McpLogin

    return McpLogin.at(params.url, own.oauth2, credential_key)


async def _refreshed(auth: AuthConfig, context: ReadonlyContext) -> AuthCredential | None:
    """Returns a refreshed credential in place of one that expired during the run. Raises ToolError."""
    # Imported here because most servers need no logins.
    from greenroom.tools.login.credential_provider import CredentialProvider

    async with aclosing(CredentialProvider(auth)) as credentials:
        return await credentials.credential(CallbackContext(context.invocation_context))
