"""An HTTP client with limits on addresses, redirects, time and size."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.errors import MissingExtra, ToolError

if TYPE_CHECKING:
    import httpx

MAX_REPLY_BYTES = 10 * 1024 * 1024
MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0
POOL_SECONDS = 10.0

HttpxClientFactory = Callable[[], "httpx.AsyncClient"]
SslVerify = bool | str | ssl.SSLContext | None
Headers = list[tuple[bytes, bytes]]
FilePart = tuple[str, tuple[str | None, bytes, str | None]]
"""Field; file name, content and media type."""


@dataclass(frozen=True, kw_only=True)
class HttpReply:
    status: int
    reason: str
    media_type: str
    body: bytes
    charset: str

    def json_or_text(self) -> Any:
        """The reply's JSON, or `{"text": …}`."""
        is_text = self.media_type.startswith("text/") and not self.body.lstrip().startswith((b"{", b"["))
        if self.body and not is_text:
            try:
                return msgspec.json.decode(self.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
        return {"text": self.text()}

    def text(self) -> str:
        try:
            return self.body.decode(self.charset, errors="replace")
        except LookupError:
            return self.body.decode(errors="replace")


class HttpClient:
    """Keeps a connection pool per event loop, since connections can't leave the loop that they were
    opened in.

    Without allow_private_network_access, proxies of the environment are not used, because they
    would resolve host names unchecked.

    httpx_client_factory: its clients are used unchanged; of their requests only the host in the URL
        is checked.

    Raises MissingExtra without httpx.
    """

    def __init__(
        self,
        *,
        ssl_verify: SslVerify = None,
        httpx_client_factory: HttpxClientFactory | None = None,
        allow_private_network_access: bool = False,
        read_timeout_seconds: float = READ_SECONDS,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("openapi", "httpx") from error

        from greenroom.tools.web.address_guard import GuardedTransport, check_host

        self._httpx = httpx
        self._guarded = GuardedTransport
        self._check_host = check_host
        self._ssl_verify = ssl_verify
        self._factory = httpx_client_factory
        self.allows_private = allow_private_network_access
        self._read_seconds = read_timeout_seconds
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Headers | None = None,
        content: bytes | None = None,
        files: list[FilePart] | None = None,
        secret_headers: Iterable[str] = (),
    ) -> HttpReply:
        """Follows redirects. To another origin it sends GET and HEAD only, without credentials.

        secret_headers: also left out then, as Authorization and Cookie always are. Raises
        ToolError, whose text is fit for a model.
        """
        try:
            client = self._client()
            request = client.build_request(
                method,
                url,
                headers=headers,
                content=content,
                files=files,
            )
            for _ in range(MAX_REDIRECTS + 1):
                if self._factory is not None and not self.allows_private:
                    self._check_host(request.url.host)

                response = await client.send(request, stream=True, follow_redirects=False)
                try:
                    if response.next_request is None:
                        return await _read(response)
                finally:
                    await response.aclose()

                _check_redirect(request, response.next_request, secret_headers)
                request = response.next_request

            raise ToolError(f"it redirects more than {MAX_REDIRECTS} times")
        except self._httpx.TimeoutException as error:
            raise ToolError(f"it did not answer in time ({type(error).__name__})") from error
        except (self._httpx.HTTPError, self._httpx.InvalidURL, OSError, UnicodeError) as error:
            raise ToolError(f"it could not be reached ({type(error).__name__})") from error

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or client.is_closed:
            self._clients = {other: kept for other, kept in self._clients.items() if not other.is_closed()}
            client = self._factory() if self._factory is not None else self._new_client()
            self._clients[loop] = client
        return client

    def _new_client(self) -> httpx.AsyncClient:
        verify = self._verification()
        return self._httpx.AsyncClient(
            verify=verify,
            trust_env=self.allows_private,
            transport=None if self.allows_private else self._guarded(verify),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # users share the client
            timeout=self._httpx.Timeout(
                connect=CONNECT_SECONDS, read=self._read_seconds, write=self._read_seconds, pool=POOL_SECONDS
            ),
        )

    def _verification(self) -> ssl.SSLContext | bool:
        ca_path = self._ssl_verify
        if isinstance(ca_path, str):
            is_folder = os.path.isdir(ca_path)
            return ssl.create_default_context(
                capath=ca_path if is_folder else None,
                cafile=None if is_folder else ca_path,
            )

        return _default_tls() if ca_path is None else ca_path

    async def aclose(self) -> None:
        """Closes the current loop's connections. Connections of closed loops are gone already."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


@functools.cache
def _default_tls() -> ssl.SSLContext:
    """Shared, because reading the certificates takes longer than most calls."""
    import httpx

    return httpx.create_ssl_context()


def _check_redirect(
    request: httpx.Request,
    target: httpx.Request,
    secret_headers: Iterable[str],
) -> None:
    before = request.url
    after = target.url
    if after.scheme != before.scheme and (before.scheme, after.scheme) != ("http", "https"):
        raise ToolError(f"it redirects from {before.scheme} to {after.scheme}, which is refused")

    if (before.host, before.port) == (after.host, after.port):
        if "cookie" in request.headers:  # an API key, which httpx leaves out
            target.headers["cookie"] = request.headers["cookie"]
        return

    if target.method not in ("GET", "HEAD"):
        raise ToolError(f"a {target.method} was redirected to another host, {after.netloc.decode()!r}")

    for name in (*secret_headers, "authorization", "cookie", "proxy-authorization"):
        target.headers.pop(name, None)


async def _read(response: httpx.Response) -> HttpReply:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise ToolError(f"its reply is larger than {MAX_REPLY_BYTES} bytes")

    return HttpReply(
        status=response.status_code,
        reason=response.reason_phrase,
        media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        body=bytes(body),
        charset=response.charset_encoding or "utf-8",
    )
