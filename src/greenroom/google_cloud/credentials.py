"""Access tokens of Google service accounts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from greenroom.errors import MissingExtra, ToolError
from greenroom.records.auth import ServiceAccount

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

_TOKEN_REQUEST_SECONDS = 30.0


class GoogleCredentialsRefused(ToolError, PermissionError):
    """Leaves out the message of Google's library, which may quote the key."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"Google gave no access token for the service account ({type(cause).__name__})")


class GoogleCredentials:
    """Caches a token until shortly before it expires.

    Raises MissingExtra without google-auth, and GoogleCredentialsRefused when the account's key is invalid or refused,
    or the machine has no credentials.
    """

    def __init__(self, account: ServiceAccount, credentials: Any = None) -> None:
        """Creates tokens for the account, or from `credentials` of `google.auth` if they are given."""
        self._account = account
        self._credentials = credentials
        self._lock = threading.Lock()

    @property
    def quota_project(self) -> str | None:
        """The project billed for calls with the machine's own credentials; None before the first token."""
        return getattr(self._credentials, "quota_project_id", None)

    async def token(self, *, rejected: str | None = None) -> str:
        """Returns a valid token. If a service rejected one, pass it as `rejected`, and a new one is fetched."""
        if self._is_usable(rejected):
            return self._credentials.token
        return await asyncio.to_thread(self._fetch, rejected)

    def _is_usable(self, rejected: str | None) -> bool:
        return self._credentials is not None and self._credentials.valid and self._credentials.token != rejected

    def _fetch(self, rejected: str | None) -> str:
        try:
            import google.auth.exceptions as errors  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
        except ImportError as error:
            raise MissingExtra("google", "google-auth") from error
        # The base class of all errors about an account: an invalid key, a refusal, no credentials on this machine.
        google_error: type[Exception] = errors.GoogleAuthError
        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials = self._load()
                if not self._is_usable(rejected):
                    self._credentials.refresh(_transport(errors.TransportError))
            except (google_error, ValueError, KeyError) as error:
                raise GoogleCredentialsRefused(error) from None
            return self._credentials.token

    def _load(self) -> Any:
        import google.auth  # pyright: ignore[reportMissingImports]
        from google.oauth2 import service_account  # pyright: ignore[reportMissingImports]

        kinds: Any = service_account
        key = self._account.service_account_credential
        if key is None:
            machine: Any = google.auth
            return machine.default(scopes=self._account.scopes or [CLOUD_PLATFORM])[0]
        if self._account.use_id_token:
            return kinds.IDTokenCredentials.from_service_account_info(key, target_audience=self._account.audience)
        return kinds.Credentials.from_service_account_info(key, scopes=self._account.scopes or [CLOUD_PLATFORM])


def _transport(transport_error: type[Exception]) -> Callable[..., SimpleNamespace]:
    """A transport over httpx; google-auth's own need requests or aiohttp."""
    import httpx

    def send(
        url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: Any = None, **_: Any
    ) -> SimpleNamespace:
        try:
            seconds = timeout or _TOKEN_REQUEST_SECONDS
            reply = httpx.request(method, url, content=body, headers=headers, timeout=seconds)
        except httpx.HTTPError as error:
            raise transport_error(f"{type(error).__name__} at {httpx.URL(url).host}") from error
        return SimpleNamespace(status=reply.status_code, headers=reply.headers, data=reply.content)

    return send
