"""Logins at MCP servers: the SDK's OAuth provider, with the credentials that are stored for users.

The SDK finds the authorization server (RFC 9728, RFC 8414), registers this app as its client (RFC
7591), and chooses the scopes. It would then wait for the user's browser. Here it stops at that
point with LoginRequired; the run asks the user, as for other tools, and the credential is then
found in the store, perhaps by another process.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import extract_field_from_www_auth, is_valid_client_metadata_url
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl

from greenroom.errors import GreenroomError, ToolError
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    CredentialRequest,
    OAuth2Auth,
    OAuthFlow,
    OAuthFlows,
)
from greenroom.tools.toolset import LoginRequired
from greenroom.tools.web.address_guard import AddressRefused, public_addresses

if TYPE_CHECKING:
    import httpx2

    from greenroom.credentials.service import BaseCredentialService

T = TypeVar("T")

_refusals: ContextVar[list[GreenroomError]] = ContextVar("_refusals")
"""Reasons why the requests of this task could not be authorized. The SDK would report their HTTP
status only.
"""

logging.getLogger("mcp.client.auth.oauth2").addFilter(
    lambda record: record.exc_info is None or not isinstance(record.exc_info[1], LoginRequired)
)


@dataclass
class McpLogin:
    """Login of an app at a server."""

    url: str
    own: OAuth2Auth
    """Its credential; with a redirect URI users log in, else the app does."""

    credential_key: str
    client: OAuthClientInformationFull | None = None
    """The registration at the authorization server, for all users of this process."""

    token: OAuthToken | None = None

    @classmethod
    def at(cls, url: str, own: OAuth2Auth, credential_key: str | None) -> McpLogin:
        named = f"{url}\n{own.client_id or ''}\n{own.redirect_uri or ''}"
        digest = hashlib.sha256(named.encode()).hexdigest()[:16]
        return cls(url, own, credential_key or f"mcp_{digest}")

    def of(self, credentials: BaseCredentialService, app_name: str, user_id: str) -> UserLogin:
        return UserLogin(self, credentials, app_name, user_id)

    async def get_tokens(self) -> OAuthToken | None:
        """The app's own token. This class is the SDK's storage for apps, `UserLogin` that for users."""
        return self.token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@dataclass
class UserLogin:
    """A user's login at a server."""

    login: McpLogin
    credentials: BaseCredentialService
    app_name: str
    user_id: str

    @property
    def owner(self) -> str:
        """Identifies whose login it is: an app's own is the same for all users."""
        if self.login.own.redirect_uri:
            return f"{self.app_name}/{self.user_id}"
        return ""

    def provider(self) -> httpx2.Auth:
        login = self.login
        if login.own.redirect_uri:
            return _UserProvider(self)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)  # of a missing issuer
            return _AppProvider(
                login.url,
                login,
                login.own.client_id or "",
                login.own.client_secret or "",
                "client_secret_post"
                if login.own.token_endpoint_auth_method == "client_secret_post"
                else "client_secret_basic",
                login.own.scope,
                login.own.issuer,
            )

    async def attempt(self, send: Callable[[], Awaitable[T]]) -> T:
        """Sends a request. Raises LoginRequired, and ToolError when the server's login can't be used."""
        refusals: list[GreenroomError] = []
        token = _refusals.set(refusals)
        try:
            return await send()
        except Exception:
            if refusals:
                raise refusals[-1] from None
            raise
        finally:
            _refusals.reset(token)

    @staticmethod
    def is_refused() -> bool:
        """Whether the request of this task was refused, so that it is of no use to repeat it."""
        return bool(_refusals.get([]))

    async def _stored(self) -> OAuth2Auth:
        credential = await self.credentials.load_credential(
            app_name=self.app_name, user_id=self.user_id, credential_key=self.login.credential_key
        )
        return (credential.oauth2 if credential is not None else None) or OAuth2Auth()

    async def get_tokens(self) -> OAuthToken | None:
        stored = await self._stored()
        if stored.access_token is None:
            return None
        return OAuthToken(
            access_token=stored.access_token, refresh_token=stored.refresh_token or None, scope=stored.scope
        )

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Stores a refreshed token. The first token is stored with the user's answer."""
        oauth2 = msgspec.structs.replace(
            await self._stored(), access_token=tokens.access_token, refresh_token=tokens.refresh_token
        )
        await self.credentials.save_credential(
            app_name=self.app_name,
            user_id=self.user_id,
            credential_key=self.login.credential_key,
            credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        stored = await self._stored()

        own = self.login.own
        client = stored if stored.client_id else own
        if client.client_id is None or (client is own and is_valid_client_metadata_url(own.client_id)):
            return self.login.client

        return OAuthClientInformationFull(
            redirect_uris=[AnyUrl(own.redirect_uri or "")],
            client_id=client.client_id,
            client_secret=client.client_secret,
            token_endpoint_auth_method=client.token_endpoint_auth_method,
            issuer=client.issuer,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.login.client = client_info


class _Provider(OAuthClientProvider):
    """Sends requests with the current token, concurrently, whereas the SDK sends them one after the other. The SDK's
    flow begins when the server refuses one.
    """

    _lacks_scope = False

    async def async_auth_flow(
        self,
        request: httpx2.Request,
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = await self.context.storage.get_tokens()  # each time: a user may withdraw a login
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token.access_token}"

        sent = request.headers.get("Authorization")
        response = yield request

        is_refused = response.status_code == 401 or _lacks_scope(response)
        if not is_refused or UserLogin.is_refused():
            return

        self._initialized = False  # so that the flow reads the token, too: another replica may have refreshed it

        flow = super().async_auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                if outgoing is not request:
                    await self._check_address(outgoing)
                    response = yield outgoing
                elif request.headers.get("Authorization") != sent:
                    sent = request.headers.get("Authorization")
                    response = yield outgoing

                if outgoing is request:
                    self._lacks_scope = _lacks_scope(response)

                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except GreenroomError as error:
            _refusals.get([]).append(error)
        except Exception as error:  # the SDK raises its own errors and those of its parsers
            reason = f"no login is possible at {self._origin()}: {error}"
            _refusals.get([]).append(ToolError(reason))
        finally:
            await flow.aclose()

        yield request  # the transport must get this reply, not the last one of the flow

    async def _check_address(self, request: httpx2.Request) -> None:
        """Raises AddressRefused when a public server leads into this server's own network."""
        host = request.url.host
        if host != urlsplit(self.context.server_url).hostname and await self.is_public():
            await public_addresses(host, request.url.port or 443)

    async def is_public(self) -> bool:
        """Whether the MCP server is outside of this server's own network."""
        url = urlsplit(self.context.server_url)
        try:
            await public_addresses(url.hostname or "", url.port or 443)
        except (AddressRefused, OSError):
            return False
        return True

    def _origin(self) -> str:
        return self.context.get_authorization_base_url(self.context.server_url)


class _AppProvider(_Provider, ClientCredentialsOAuthProvider):
    """The app logs in by its own credential, as for the grant `client_credentials`."""


class _UserProvider(_Provider):
    def __init__(self, user: UserLogin) -> None:
        own = user.login.own
        is_document = is_valid_client_metadata_url(own.client_id)
        redirect_uri = own.redirect_uri or ""
        method: Any = own.token_endpoint_auth_method
        super().__init__(
            user.login.url,
            OAuthClientMetadata(
                client_name="greenroom",
                redirect_uris=[AnyUrl(redirect_uri)],
                application_type="native" if urlsplit(redirect_uri).hostname in ("localhost", "127.0.0.1") else "web",
                token_endpoint_auth_method=method,
            ),
            user,
            client_metadata_url=own.client_id if is_document else None,
        )
        self._user = user

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.token_expiry_time = None  # that of an earlier token; the server refuses one that has expired

    async def _perform_authorization(self) -> httpx2.Request:
        """A request for a new token, if the stored one can be refreshed. Raises LoginRequired."""
        context = self.context

        token = context.current_tokens
        if token is not None:
            granted = set((token.scope or "").split())
        else:
            granted = set[str]()

        is_granted = set((context.client_metadata.scope or "").split()) <= granted
        if is_granted and self._lacks_scope:
            raise OAuthFlowError("it asks for scopes that it was granted")
        if is_granted and token is not None and token.refresh_token:
            return await self._refresh_token()

        raise await self._login_required()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if response.status_code >= 500:
            raise OAuthFlowError(f"the authorization server answered with status {response.status_code}")
        used = self.context.current_tokens
        if not await self._handle_refresh_response(response):
            await self._initialize()  # another replica may have used the refresh token before
            if self.context.current_tokens is None or self.context.current_tokens == used:
                raise await self._login_required()

    async def _login_required(self) -> LoginRequired:
        context = self.context
        own = self._user.login.own
        client = context.client_info
        metadata = context.oauth_metadata

        if client is None:
            raise OAuthFlowError("this app is not registered there as a client")

        if metadata is not None:
            endpoint = str(metadata.authorization_endpoint)
        else:
            endpoint = ""

        if metadata is not None:
            methods = metadata.token_endpoint_auth_methods_supported
        else:
            methods = None

        scopes = (context.client_metadata.scope or "").split()
        names_resource = context.should_include_resource_param(context.protocol_version)
        flow = OAuthFlow(
            authorization_url=endpoint or urljoin(self._origin(), "/authorize"),
            token_url=self._get_token_endpoint(),
            scopes=dict.fromkeys(scopes, ""),
        )
        credential = OAuth2Auth(
            client_id=client.client_id,
            client_secret=client.client_secret,
            redirect_uri=own.redirect_uri,
            token_endpoint_auth_method=client.token_endpoint_auth_method or _method(client.client_secret, methods),
            issuer=client.issuer or (str(metadata.issuer) if metadata is not None else None),
            resource=context.get_resource_url() if names_resource else None,
            scope=" ".join(scopes) or None,
            audience=own.audience,
            prompt="consent" if "offline_access" in scopes else own.prompt,  # OpenID Connect Core, 11
        )
        config = AuthConfig(
            auth_scheme=AuthScheme(type="oauth2", flows=OAuthFlows(authorization_code=flow)),
            raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=credential),
            credential_key=self._user.login.credential_key,
        )
        request = CredentialRequest(
            id="",
            session_id="",
            auth_config=config,
            only_public_hosts=await self.is_public(),
        )

        return LoginRequired(self._origin(), request)


def _lacks_scope(response: httpx2.Response) -> bool:
    return response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope"


def _method(secret: str | None, supported: list[str] | None) -> str:
    if secret is None:
        return "none"
    if supported is None or "client_secret_basic" in supported:
        return "client_secret_basic"
    return "client_secret_post"
