"""The credentials of tools that call Google Cloud: given by the app, found in the state, or granted by each user."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Protocol

from greenroom.errors import MissingExtra, ToolError
from greenroom.google_cloud.credentials import GoogleCredentials, GoogleCredentialsRefused
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    OAuth2Auth,
    OAuthFlow,
    OAuthFlows,
    ServiceAccount,
)
from greenroom.records.base import JsonObject
from greenroom.tools.login.credential_provider import CredentialProvider

_log = logging.getLogger("greenroom.tools")


class Credentials(Protocol):
    """The part of `google.auth.credentials.Credentials` that tools use."""

    token: str | None

    @property
    def valid(self) -> bool: ...


@dataclass(kw_only=True)
class BaseGoogleCredentialsConfig:
    """Takes one of: credentials; external_access_token_key; client_id with client_secret. Raises ValueError."""

    credentials: Credentials | None = None
    """Of `google.auth`, such as `google.auth.default()[0]`: used for all users."""
    external_access_token_key: str | None = None
    """The key of an access token in the session's state, which the app puts there."""
    client_id: str | None = None
    """The app's OAuth client, with which each user logs in at Google."""
    client_secret: str | None = None
    scopes: Sequence[str] | None = None
    """The scopes that users are asked for; default: those of the service."""
    authorization_url: str = "https://accounts.google.com/o/oauth2/v2/auth?access_type=offline"
    token_url: str = "https://oauth2.googleapis.com/token"

    default_scopes: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        has_client = self.client_id is not None or self.client_secret is not None or self.scopes is not None
        if self.credentials is not None:
            if self.external_access_token_key or has_client:
                raise ValueError(
                    "With credentials, external_access_token_key, client_id, client_secret and scopes must not be given"
                )
        elif self.external_access_token_key:
            if has_client:
                raise ValueError(
                    "With external_access_token_key, client_id, client_secret and scopes must not be given"
                )
        elif not self.client_id or not self.client_secret:
            raise ValueError("Give credentials, external_access_token_key, or client_id and client_secret")
        if not self.scopes:
            self.scopes = self.default_scopes


class GoogleCredentialsManager:
    """Finds valid credentials for a call, refreshes them, and asks the user for a login where there are none."""

    def __init__(self, credentials_config: BaseGoogleCredentialsConfig) -> None:
        self.credentials_config = credentials_config
        self._refreshed: GoogleCredentials | None = None
        if credentials_config.credentials is not None:
            self._refreshed = GoogleCredentials(ServiceAccount(), credentials_config.credentials)
        self._refreshing = 0
        login = _login(credentials_config)
        self._provider = CredentialProvider(login) if login is not None else None

    async def get_valid_credentials(self, tool_context: ToolContext) -> Credentials | None:
        """None: the user must log in first, see `request_login`. Raises ToolError and MissingExtra."""
        config = self.credentials_config
        if config.external_access_token_key:
            token = tool_context.state.get(config.external_access_token_key)
            if not isinstance(token, str) or not token:
                raise ToolError(f"The state has no access token at {config.external_access_token_key!r}")
            return _with_token(token)

        if self._refreshed is not None:
            try:
                await self._refreshed.token()
            except GoogleCredentialsRefused:
                if self._provider is None:
                    raise
                _log.warning("the credentials of a Google tool can't be refreshed; the user is asked for a login")
            else:
                return config.credentials

        if self._provider is None:
            return None
        granted = await self._granted(self._provider, tool_context)
        token = granted.bearer_token() if granted is not None else None
        return _with_token(token) if token else None

    async def renew(self, tool_context: ToolContext, refused: Credentials) -> Credentials | None:
        """Credentials in place of those that Google has just refused; None when there are none."""
        if self._refreshed is not None:
            try:
                await self._refreshed.token(rejected=refused.token)
            except GoogleCredentialsRefused:
                return None
            return self.credentials_config.credentials

        if self._provider is None:
            return None
        granted = await self._granted(self._provider, tool_context)
        if granted is not None and granted.bearer_token() == refused.token:
            granted = await self._granted(self._provider, tool_context, refused=granted)
        token = granted.bearer_token() if granted is not None else None
        return _with_token(token) if token else None

    @property
    def users_can_log_in(self) -> bool:
        return self._provider is not None

    def request_login(self, tool_context: ToolContext) -> JsonObject:
        """Asks the user for a login; returns the call's response until then."""
        if self._provider is None:
            raise ToolError("Without client_id and client_secret, no user can log in")
        return self._provider.request(tool_context)

    async def _granted(
        self, provider: CredentialProvider, tool_context: ToolContext, *, refused: AuthCredential | None = None
    ) -> AuthCredential | None:
        """The user's credential. The last of concurrent calls closes the connections to the token service."""
        self._refreshing += 1
        try:
            return await provider.credential(tool_context, refused=refused)
        finally:
            self._refreshing -= 1
            if self._refreshing == 0:
                await provider.aclose()


def _login(config: BaseGoogleCredentialsConfig) -> AuthConfig | None:
    """The login of users; None without an OAuth client. Users' own credentials of `google.auth` have one."""
    client_id = config.client_id or getattr(config.credentials, "client_id", None)
    client_secret = config.client_secret or getattr(config.credentials, "client_secret", None)
    if not client_id or not client_secret:
        return None
    scopes: Sequence[str] = getattr(config.credentials, "scopes", None) or config.scopes or ()
    flow = OAuthFlow(
        authorization_url=config.authorization_url, token_url=config.token_url, scopes=dict.fromkeys(scopes, "")
    )
    # Google issues a refresh token for certain only when the user is asked for consent.
    oauth2 = OAuth2Auth(client_id=client_id, client_secret=client_secret, prompt="consent")
    return AuthConfig(
        auth_scheme=AuthScheme(type="oauth2", flows=OAuthFlows(authorization_code=flow)),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2),
    )


def _with_token(token: str) -> Credentials:
    try:
        oauth2 = import_module("google.oauth2.credentials")
    except ImportError as error:
        raise MissingExtra("google", "google-auth") from error
    return oauth2.Credentials(token=token)
