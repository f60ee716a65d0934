"""Authentication of calls: security schemes, credentials, and requests for credentials.

Source of names and shapes: ADK's AuthConfig, and the security schemes of OpenAPI.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record

EARLY_SECONDS = 30.0
"""A token counts as expired this long before it expires, because calls take time."""


class AuthCredentialTypes(StrEnum):
    API_KEY = "apiKey"
    HTTP = "http"
    OAUTH2 = "oauth2"
    OPEN_ID_CONNECT = "openIdConnect"
    SERVICE_ACCOUNT = "serviceAccount"


class AuthSchemeType(StrEnum):
    apiKey = "apiKey"  # noqa: N815 - as in OpenAPI, and in ADK
    http = "http"
    oauth2 = "oauth2"
    openIdConnect = "openIdConnect"  # noqa: N815


class OAuthFlow(Record, kw_only=True):
    authorization_url: str | None = None
    token_url: str | None = None
    refresh_url: str | None = None
    scopes: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class OAuthFlows(Record, kw_only=True):
    implicit: OAuthFlow | None = None
    password: OAuthFlow | None = None
    client_credentials: OAuthFlow | None = None
    authorization_code: OAuthFlow | None = None


class AuthScheme(Record, kw_only=True):
    """An OpenAPI security scheme. `type`: apiKey, http, oauth2, openIdConnect, or a name of a
    provider's own.
    """

    type: str
    description: str | None = None
    name: str | None = None
    """The name of the header, query parameter or cookie of an API key."""
    in_: str | None = msgspec.field(default=None, name="in")
    """The place of an API key: header, query or cookie."""
    scheme: str | None = None
    """The scheme of type `http`, such as basic or bearer."""
    bearer_format: str | None = None
    flows: OAuthFlows | None = None
    open_id_connect_url: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    scopes: list[str] | None = None


class OpenIdConnectWithConfig(AuthScheme, kw_only=True):
    """A scheme of type openIdConnect with its endpoints, whose document is therefore not fetched."""

    type: str = msgspec.field(default_factory=lambda: AuthSchemeType.openIdConnect.value)
    userinfo_endpoint: str | None = None
    revocation_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None


class PydanticModel(Protocol):
    def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> JsonObject: ...


AuthSchemeLike: TypeAlias = AuthScheme | Mapping[str, Any] | PydanticModel
"""A scheme as a record, as a map with OpenAPI's keys, or as a model of `fastapi.openapi.models`."""


def to_auth_scheme(scheme: AuthSchemeLike) -> AuthScheme:
    """Raises AgentConfigError when it is not a security scheme."""
    if isinstance(scheme, AuthScheme):
        return scheme
    plain = scheme
    if not isinstance(plain, Mapping) and hasattr(plain, "model_dump"):
        plain = plain.model_dump(mode="json", by_alias=True, exclude_none=True)
    try:
        return wire.from_plain(wire.to_plain(plain), AuthScheme)
    except InvalidRequest as error:
        raise AgentConfigError(f"Not a security scheme: {error.detail}") from None


class HttpCredentials(Record, kw_only=True):
    username: str | None = None
    password: str | None = None
    token: str | None = None


class HttpAuth(Record, kw_only=True):
    scheme: str = "bearer"
    credentials: HttpCredentials = msgspec.field(default_factory=HttpCredentials)
    additional_headers: dict[str, str] | None = None


class OAuth2Auth(Record, kw_only=True):
    """-"""

    client_id: str | None = None
    client_secret: str | None = None
    auth_uri: str | None = None
    state: str | None = None
    nonce: str | None = None
    redirect_uri: str | None = None
    auth_response_uri: str | None = None
    """The URI to which the provider redirected the user's browser, with the code."""
    auth_code: str | None = None
    access_token: str | None = None
    refresh_token: str | None = None
    id_token: str | None = None
    expires_at: float | None = None
    """Unix seconds."""
    expires_in: float | None = None
    audience: str | None = None
    prompt: str | None = None
    code_verifier: str | None = None
    code_challenge_method: str | None = None
    token_endpoint_auth_method: str | None = None
    issuer: str | None = None
    """The authorization server that issued the client id (RFC 8414)."""
    resource: str | None = None
    """The server that the token is for (RFC 8707)."""
    scope: str | None = None
    """The requested scopes, separated by spaces."""


class ServiceAccountCredential(dict[str, Any]):
    """The content of a Google service account's key file, also with its keys as arguments: `type_` is `type`."""

    def __init__(self, content: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        super().__init__({**(content or {}), **{name.removesuffix("_"): value for name, value in fields.items()}})

    @classmethod
    def model_construct(cls, **fields: Any) -> ServiceAccountCredential:
        return cls(**fields)

    @classmethod
    def model_validate(cls, content: Mapping[str, Any]) -> ServiceAccountCredential:
        return cls(content)


class ServiceAccount(Record, kw_only=True):
    """A Google service account. `service_account_credential` is the content of its key file, in snake_case."""

    service_account_credential: JsonObject | None = None
    scopes: list[str] = msgspec.field(default_factory=list[str])
    use_default_credential: bool = False
    use_id_token: bool = False
    audience: str | None = None


class AuthCredential(Record, kw_only=True):
    auth_type: AuthCredentialTypes
    resource_ref: str | None = None
    api_key: str | None = None
    http: HttpAuth | None = None
    service_account: ServiceAccount | None = None
    oauth2: OAuth2Auth | None = None

    def bearer_token(self) -> str | None:
        if self.oauth2 is not None and self.oauth2.access_token:
            return self.oauth2.access_token
        return self.http.credentials.token if self.http is not None else None

    def is_expired(self) -> bool:
        """True if it has expired or will within EARLY_SECONDS; False when the time is unknown."""
        expires_at = self.oauth2.expires_at if self.oauth2 is not None else None
        return expires_at is not None and expires_at <= time.time() + EARLY_SECONDS

    def secrets(self) -> list[str]:
        """The secret values, which must not reach a client, a model or a log."""
        secrets = [self.api_key]
        if self.http is not None:
            secrets += [self.http.credentials.password, self.http.credentials.token]
            secrets += (self.http.additional_headers or {}).values()
        if self.oauth2 is not None:
            o = self.oauth2
            secrets += [o.client_secret, o.access_token, o.refresh_token, o.id_token, o.auth_code, o.code_verifier]
        if self.service_account is not None:
            secrets.append((self.service_account.service_account_credential or {}).get("private_key"))
        return [secret for secret in secrets if secret]


class GrantedLogin(Record, kw_only=True):
    """A stored credential without its secrets."""

    credential_key: str
    """The key that the credential is stored under."""
    auth_type: AuthCredentialTypes
    """The kind of the credential."""
    expires_at: float | None = None
    """Unix seconds; None if the credential does not expire."""


class AuthConfig(Record, kw_only=True):
    """A request for a credential: the raw credential is the app's own, the exchanged one
    authenticates calls.
    """

    auth_scheme: AuthScheme
    """Also accepted as a map or as a model of FastAPI's (`AuthSchemeLike`)."""
    raw_auth_credential: AuthCredential | None = None
    exchanged_auth_credential: AuthCredential | None = None
    credential_key: str | None = None

    def __post_init__(self) -> None:
        self.auth_scheme = to_auth_scheme(self.auth_scheme)
        if self.credential_key is None:
            self.credential_key = _credential_key(self.auth_scheme, self.raw_auth_credential)


_SECRET_FIELDS = (
    "client_secret",
    "refresh_token",
    "id_token",
    "access_token",
    "auth_code",
    "auth_response_uri",
    "code_verifier",
)


def without_secrets(credential: AuthCredential | None) -> AuthCredential | None:
    """The public part of an app's own credential, such as the client id."""
    if credential is None:
        return None

    replace = msgspec.structs.replace
    public = replace(credential, api_key=None, service_account=None)
    if credential.http is not None:
        username = credential.http.credentials.username
        public.http = replace(credential.http, credentials=HttpCredentials(username=username), additional_headers=None)
    if credential.oauth2 is not None:
        public.oauth2 = replace(credential.oauth2, **dict.fromkeys(_SECRET_FIELDS, None))
    return public


def public_config(config: AuthConfig) -> AuthConfig:
    """The config as clients see it: where the user logs in, without secrets."""
    return msgspec.structs.replace(
        config,
        raw_auth_credential=without_secrets(config.raw_auth_credential),
        exchanged_auth_credential=without_secrets(config.exchanged_auth_credential),
    )


def token_to_scheme_credential(
    token_type: str, location: str | None = None, name: str | None = None, credential_value: str | None = None
) -> tuple[AuthScheme, AuthCredential | None]:
    """A scheme with its credential, for a key ("apikey") or a bearer token ("oauth2Token").

    location: header, query or cookie. Without a value there is no credential, and the user will be asked.
    """
    if token_type == "apikey":
        scheme = AuthScheme(type="apiKey", in_=location, name=name)
        key = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=credential_value)
        return scheme, key if credential_value else None
    if token_type == "oauth2Token":
        http = HttpAuth(scheme="bearer", credentials=HttpCredentials(token=credential_value))
        bearer = AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)
        return AuthScheme(type="http", scheme="bearer", bearer_format="JWT"), bearer if credential_value else None
    raise AgentConfigError(f"Unknown token type {token_type!r}; known: apikey, oauth2Token")


def dict_to_auth_scheme(data: Mapping[str, Any]) -> AuthScheme:
    """The scheme in a map with OpenAPI's keys. Raises AgentConfigError."""
    return to_auth_scheme(data)


def service_account_scheme_credential(config: ServiceAccount) -> tuple[AuthScheme, AuthCredential]:
    """A bearer scheme, and a credential that is exchanged for the account's tokens."""
    credential = AuthCredential(auth_type=AuthCredentialTypes.SERVICE_ACCOUNT, service_account=config)
    return AuthScheme(type="http", scheme="bearer", bearer_format="JWT"), credential


def service_account_dict_to_scheme_credential(
    config: JsonObject, scopes: list[str]
) -> tuple[AuthScheme, AuthCredential]:
    """Returns the scheme and credential of a service account, from the content of its key file."""
    return service_account_scheme_credential(ServiceAccount(service_account_credential=config, scopes=scopes))


def openid_dict_to_scheme_credential(
    config_dict: Mapping[str, Any], scopes: list[str], credential_dict: Mapping[str, Any]
) -> tuple[AuthScheme, AuthCredential]:
    """An OpenID Connect scheme, and the app's own credential for it.

    config_dict: the provider's metadata, with at least `authorization_endpoint` and
    `token_endpoint`, or with `openIdConnectUrl`, where they are. credential_dict: `client_id`,
    `client_secret` and perhaps `redirect_uri`, also as Google's console downloads them, below one
    other key. Raises AgentConfigError.
    """
    client = credential_dict
    if len(client) == 1:
        (inner,) = client.values()
        client = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else client

    missing = [name for name in ("client_id", "client_secret") if name not in client]
    if missing:
        raise AgentConfigError(f"The credentials of an OpenID Connect client lack {' and '.join(missing)}")

    url: str | None = config_dict.get("openIdConnectUrl")
    endpoints = {name: config_dict.get(name) for name in ("authorization_endpoint", "token_endpoint")}
    if not url and not all(endpoints.values()):
        raise AgentConfigError("An OpenID Connect configuration needs authorization_endpoint and token_endpoint")

    oauth2 = OAuth2Auth(
        client_id=client["client_id"], client_secret=client["client_secret"], redirect_uri=client.get("redirect_uri")
    )
    scheme = AuthScheme(type="openIdConnect", open_id_connect_url=url, scopes=scopes, **endpoints)
    return scheme, AuthCredential(auth_type=AuthCredentialTypes.OPEN_ID_CONNECT, oauth2=oauth2)


def openid_url_to_scheme_credential(
    openid_url: str, scopes: list[str], credential_dict: Mapping[str, Any]
) -> tuple[AuthScheme, AuthCredential]:
    """Does the same as `openid_dict_to_scheme_credential` for metadata at a URL, which is fetched when a
    user is first asked to log in."""
    return openid_dict_to_scheme_credential({"openIdConnectUrl": openid_url}, scopes, credential_dict)


_VOLATILE = frozenset(
    {
        "authUri", "state", "nonce", "redirectUri", "authResponseUri", "authCode", "codeVerifier",
        "accessToken", "refreshToken", "idToken", "expiresAt", "expiresIn",
    }
)  # fmt: skip


def _credential_key(scheme: AuthScheme, credential: AuthCredential | None) -> str:
    """The key under which a credential is stored: equal for configs that the same login satisfies."""
    key = f"adk_{scheme.type}_{_digest(msgspec.to_builtins(scheme))}"
    if credential is None:
        return key
    plain: JsonObject = msgspec.to_builtins(credential)
    if "oauth2" in plain:
        plain["oauth2"] = {name: value for name, value in plain["oauth2"].items() if name not in _VOLATILE}
    return f"{key}_{credential.auth_type.value}_{_digest(plain)}"


def _digest(plain: Mapping[str, object]) -> str:
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


class CredentialParts(NamedTuple):
    headers: dict[str, str]
    query: dict[str, str]
    cookies: dict[str, str]


def credential_parts(scheme: AuthScheme, credential: AuthCredential) -> CredentialParts | None:
    """The headers, query and cookies that carry the credential; None when it has no value for the scheme."""
    parts = CredentialParts({}, {}, {})
    if scheme.type == "apiKey":
        if not credential.api_key or not scheme.name:
            return None
        carriers = {"header": parts.headers, "query": parts.query, "cookie": parts.cookies}
        carriers.get(scheme.in_ or "header", parts.headers)[scheme.name] = credential.api_key
        return parts

    authorization = _authorization(scheme, credential)
    if authorization is None:
        return None

    parts.headers["Authorization"] = authorization
    if credential.http is not None:
        parts.headers.update(credential.http.additional_headers or {})
    return parts


def _authorization(scheme: AuthScheme, credential: AuthCredential) -> str | None:
    token = credential.bearer_token()
    if scheme.type != "http":
        return f"Bearer {token}" if token else None

    name = scheme.scheme or (credential.http.scheme if credential.http is not None else "bearer")
    if name.lower() == "basic":
        credentials = credential.http.credentials if credential.http is not None else HttpCredentials()
        if not credentials.username:
            return None
        pair = f"{credentials.username}:{credentials.password or ''}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    if not token:
        return None
    return f"Bearer {token}" if name.lower() == "bearer" else f"{name} {token}"


class CredentialRequest(Record, kw_only=True):
    """A pending request for a login, which is stored apart from the log since it holds secrets."""

    id: str
    """Also the id of the function call that asks for the login."""
    session_id: str
    auth_config: AuthConfig
    """Contains the app's own secrets, the `state` and the code verifier."""
    only_public_hosts: bool = False
    """Set if the token endpoint comes from a document, so that it may not lead into the server's
    own network."""
    outcome: Literal["granted", "declined"] | None = None
    """None while the request is pending; after that the secrets are gone from `auth_config`."""
    created_at: float = msgspec.field(default_factory=time.time)
