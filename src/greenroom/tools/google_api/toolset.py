"""A set of tools, one for each method of a Google API, read from the API's discovery document on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.auth import AuthSchemeLike, OpenIdConnectWithConfig, ServiceAccount, to_auth_scheme
from greenroom.records.base import JsonObject
from greenroom.records.run import OnToolsetError
from greenroom.tools.google_api.discovery import scopes_of, to_openapi
from greenroom.tools.google_api.tool import GoogleApiTool
from greenroom.tools.login.credential_provider import TokenExchange
from greenroom.tools.openapi.document import ApiDocument, read_document
from greenroom.tools.openapi.operation import read_operations
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate
from greenroom.tools.web.http_client import READ_SECONDS, HttpClient, HttpxClientFactory

DISCOVERY_URLS = (
    "https://www.googleapis.com/discovery/v1/apis/{api}/{apiVersion}/rest",
    "https://{api}.googleapis.com/$discovery/rest?version={apiVersion}",
)
"""URLs of the documents of older APIs, and of newer ones, for which the first answers 404."""
AUTHORIZATION_URL = "https://accounts.google.com/o/oauth2/v2/auth?access_type=offline"
"""Without `access_type=offline` Google issues no refresh token, and users would log in each hour."""
TOKEN_URL = "https://oauth2.googleapis.com/token"


class GoogleApiToolset(BaseToolset):
    """The tools of one API of Google, such as `calendar` `v3`.

    client_id, client_secret: the app's OAuth client; each user logs in at Google on the first call. service_account:
    used in place of users' logins. tool_filter: applies to names without the prefix. additional_headers: sent with each
    request. additional_scopes: asked for with the first scope of the API. discovery_url: of another discovery document;
    `{api}` and `{apiVersion}` in it are replaced. auth_scheme: the login, in place of Google's.
    httpx_client_factory: makes the clients of all requests, with a client certificate for instance.
    allow_private_network_access: the document, the API and its token service may be in a private network.

    The first `get_tools` fetches the document. It raises ToolError when that fails, and the next call tries again; and
    AgentConfigError when it is no discovery document.
    """

    def __init__(
        self,
        api_name: str,
        api_version: str,
        client_id: str | None = None,
        client_secret: str | None = None,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        service_account: ServiceAccount | None = None,
        tool_name_prefix: str | None = None,
        *,
        additional_headers: Mapping[str, str] | None = None,
        additional_scopes: Sequence[str] | None = None,
        discovery_url: str | None = None,
        auth_scheme: AuthSchemeLike | None = None,
        httpx_client_factory: HttpxClientFactory | None = None,
        allow_private_network_access: bool = False,
        read_timeout_seconds: float = READ_SECONDS,
        on_error: OnToolsetError | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix, on_error=on_error)
        self.api_name = api_name
        self.api_version = api_version
        self._client_id = client_id
        self._client_secret = client_secret
        self._service_account = service_account
        self._additional_headers = dict(additional_headers or {})
        self._additional_scopes = list(additional_scopes or ())
        self._discovery_urls = DISCOVERY_URLS if discovery_url is None else (discovery_url,)
        self._auth_scheme = to_auth_scheme(auth_scheme) if auth_scheme is not None else None
        connect = partial(
            HttpClient, httpx_client_factory=httpx_client_factory, read_timeout_seconds=read_timeout_seconds
        )
        self._client = connect(allow_private_network_access=allow_private_network_access)
        # The developer names the token service in `auth_scheme`, as in `OpenAPIToolset`.
        names_token_service = auth_scheme is not None
        self._token_client = connect(allow_private_network_access=allow_private_network_access or names_token_service)
        self._exchange = TokenExchange(self._token_client)
        self._document: JsonObject | None = None
        self._tools: list[GoogleApiTool] | None = None

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        if self._document is None:
            # Concurrent first calls all fetch it, which is simpler than a lock that works in any event loop.
            self._document = await self._fetch()
        if self._tools is None:
            self._tools = self._make_tools(self._document)
        return [tool for tool in self._tools if self.is_selected(tool, readonly_context)]

    def set_tool_filter(self, tool_filter: Sequence[str] | ToolPredicate) -> None:
        self.tool_filter = tool_filter

    def configure_auth(self, client_id: str, client_secret: str) -> None:
        """Calls are made with each user's own login."""
        self._client_id = client_id
        self._client_secret = client_secret
        self._tools = None

    def configure_sa_auth(self, service_account: ServiceAccount) -> None:
        """Calls are made with the service account."""
        self._service_account = service_account
        self._tools = None

    async def close(self) -> None:
        await self._client.aclose()
        await self._token_client.aclose()

    async def _fetch(self) -> JsonObject:
        problem = ""
        for template in self._discovery_urls:
            url = template.replace("{api}", quote(self.api_name, safe=""))
            url = url.replace("{apiVersion}", quote(self.api_version, safe=""))
            problem = f"The discovery document of {self.api_name} {self.api_version} at {url} can't be read"
            try:
                reply = await self._client.send("GET", url, headers=[(b"Accept", b"application/json")])
            except ToolError as error:
                raise ToolError(f"{problem}: {error.detail}") from error
            if reply.status == 200:
                return read_document(reply.body, "json")
            problem += f": it answered with status {reply.status}"
            if reply.status != 404:
                break
        raise ToolError(problem)

    def _make_tools(self, discovery: JsonObject) -> list[GoogleApiTool]:
        scheme = self._auth_scheme or self._google_login(discovery)
        return [
            GoogleApiTool(
                RestApiTool(operation, self._client, exchange=self._exchange, auth_scheme=scheme),
                self._client_id,
                self._client_secret,
                self._service_account,
                additional_headers=self._additional_headers,
            )
            for operation in read_operations(ApiDocument(to_openapi(discovery)))
        ]

    def _google_login(self, discovery: JsonObject) -> OpenIdConnectWithConfig:
        scopes = [*scopes_of(discovery)[:1], *self._additional_scopes]
        return OpenIdConnectWithConfig(
            authorization_endpoint=AUTHORIZATION_URL,
            token_endpoint=TOKEN_URL,
            revocation_endpoint="https://oauth2.googleapis.com/revoke",
            token_endpoint_auth_methods_supported=["client_secret_post", "client_secret_basic"],
            grant_types_supported=["authorization_code"],
            scopes=list(dict.fromkeys(scopes)),
        )
