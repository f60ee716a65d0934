"""A set of tools, one for each operation of an API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from greenroom.errors import AgentConfigError, ToolError
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.auth import AuthCredential, AuthSchemeLike, to_auth_scheme
from greenroom.records.base import JsonObject
from greenroom.records.run import OnToolsetError
from greenroom.tools.login.credential_provider import TokenExchange
from greenroom.tools.openapi.document import ApiDocument, read_document
from greenroom.tools.openapi.operation import read_operations
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, HeaderProvider, ToolPredicate
from greenroom.tools.web.http_client import READ_SECONDS, HttpClient, HttpxClientFactory, SslVerify


class OpenAPIToolset(BaseToolset):
    """The document is a dict, a text, a file, or a URL; a URL is fetched when the tools are first
    requested.

    base_url: replaces the document's servers.
    auth_scheme: replaces the operations' own.
    auth_credential: for all operations; without one the user is asked.
    tool_filter: applies to names without the prefix.
    preserve_property_names: parameters keep their names instead of snake_case.
    allow_private_network_access: the document, the API and its token services may be in a private
        network or on this machine.

    Raises AgentConfigError for a document that can't be used.
    """

    def __init__(
        self,
        *,
        spec_dict: JsonObject | None = None,
        spec_str: str | None = None,
        spec_str_type: Literal["json", "yaml"] = "json",
        spec_path: str | Path | None = None,
        spec_url: str | None = None,
        base_url: str | None = None,
        auth_scheme: AuthSchemeLike | None = None,
        auth_credential: AuthCredential | None = None,
        credential_key: str | None = None,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
        ssl_verify: SslVerify = None,
        header_provider: HeaderProvider | None = None,
        httpx_client_factory: HttpxClientFactory | None = None,
        preserve_property_names: bool = False,
        allow_private_network_access: bool = False,
        read_timeout_seconds: float = READ_SECONDS,
        on_error: OnToolsetError | None = None,
    ) -> None:
        super().__init__(
            tool_filter=tool_filter,
            tool_name_prefix=tool_name_prefix,
            on_error=on_error,
        )

        sources = [source for source in (spec_dict, spec_str, spec_path, spec_url) if source is not None]
        if len(sources) != 1:
            raise AgentConfigError("OpenAPIToolset takes one of spec_dict, spec_str, spec_path and spec_url")

        self._base_url = base_url
        self._keep_names = preserve_property_names
        connect = partial(
            HttpClient,
            ssl_verify=ssl_verify,
            httpx_client_factory=httpx_client_factory,
            read_timeout_seconds=read_timeout_seconds,
        )
        self._client = connect(allow_private_network_access=allow_private_network_access)
        # The developer names the token service in `auth_scheme`; without one, the document does.
        names_token_service = auth_scheme is not None
        self._token_client = connect(allow_private_network_access=allow_private_network_access or names_token_service)
        self._tool_options: dict[str, Any] = {
            "exchange": TokenExchange(self._token_client),
            "auth_scheme": auth_scheme and to_auth_scheme(auth_scheme),
            "auth_credential": auth_credential,
            "credential_key": credential_key,
            "header_provider": header_provider,
        }
        self._url = spec_url
        self._tools: dict[str, RestApiTool] | None = None

        if spec_str is not None:
            spec_dict = read_document(spec_str, spec_str_type)
        elif spec_path is not None:
            path = Path(spec_path)
            spec_dict = read_document(
                path.read_bytes(),
                "json" if path.suffix == ".json" else "yaml",
            )

        if spec_dict is not None:
            self._make_tools(ApiDocument(spec_dict))

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Raises ToolError when the document can't be fetched; the next call tries again."""
        if self._tools is None:
            # Concurrent first calls all fetch it, which is simpler than a lock that works in any event loop.
            root = await _fetch(self._client, self._url or "")
            if self._tools is None:
                await asyncio.to_thread(self._make_tools, ApiDocument(root, url=self._url))
        return [tool for tool in (self._tools or {}).values() if self.is_selected(tool, readonly_context)]

    def get_tool(self, tool_name: str) -> RestApiTool | None:
        """A tool by its name, with or without the prefix. A document at a URL must have been
        fetched before.
        """
        tools = self._tools or {}
        return tools.get(tool_name) or tools.get(tool_name.removeprefix(f"{self.tool_name_prefix}_"))

    async def close(self) -> None:
        await self._client.aclose()
        await self._token_client.aclose()

    def _make_tools(self, document: ApiDocument) -> None:
        operations = read_operations(document, base_url=self._base_url, keep_names=self._keep_names)
        self._tools = {one.name: RestApiTool(one, self._client, **self._tool_options) for one in operations}


async def _fetch(client: HttpClient, url: str) -> JsonObject:
    try:
        reply = await client.send(
            "GET",
            url,
            headers=[(b"Accept", b"application/json, application/yaml, */*;q=0.5")],
        )
    except ToolError as error:
        raise ToolError(f"The OpenAPI document at {url} can't be read: {error.detail}") from error

    if reply.status != 200:
        raise ToolError(f"The OpenAPI document at {url} can't be read: it answered with status {reply.status}")

    is_json = reply.body.lstrip().startswith(b"{")
    return read_document(reply.body, "json" if is_json else "yaml")
