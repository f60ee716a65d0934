"""Requests over the network, within limits: of addresses, of redirects, of time and of size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import msgspec

from greenroom.errors import MissingExtra, ToolError
from greenroom.tools.web.address_guard import check_host, public_addresses

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
"""Field, and file name, content and media type."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    reason: str
    media_type: str
    body: bytes
    charset: str

    def json_or_text(self) -> Any:
        """The reply's JSON, else `{"text": …}`."""
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
    """Connections are kept per event loop, since they can't leave the one they were made in.

    With the guard on, proxies of the environment are not used: they would look up names behind the guard's back.
    httpx_client_factory: its clients are used as they are; of their addresses only what the URL says is looked at.
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
        self._httpx = httpx
        self._ssl_verify = ssl_verify
        self._factory = httpx_client_factory
        self.allows_private = allow_private_network_access
        self._read_seconds = read_timeout_seconds
        self._clients: dict[int, tuple[asyncio.AbstractEventLoop, httpx.AsyncClient]] = {}

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Headers | None = None,
        content: bytes | None = None,
        files: list[FilePart] | None = None,
        secret_headers: frozenset[bytes] = frozenset(),
    ) -> Reply:
        """Follows redirects of the same host; to another one only what reads is sent, and no secrets.

        secret_headers: names in lower case. Raises ToolError, whose text is fit for a model.
        """
        given: Headers = list(headers or [])
        try:
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._send_once(method, url, given, content, files)
                try:
                    target = _redirected(response, url)
                    if target is None:
                        return await self._read(response)
                finally:
                    await response.aclose()
                method, content, files = _after_redirect(response.status_code, method, content, files)
                if not self._same_origin(url, target):
                    if method not in ("GET", "HEAD"):
                        raise ToolError(f"a {method} was redirected to another host, {_host(target)!r}")
                    given = [pair for pair in given if pair[0].lower() not in secret_headers | _NOT_TO_OTHERS]
                url = target
            raise ToolError(f"it redirects more than {MAX_REDIRECTS} times")
        except self._httpx.TimeoutException as error:
            raise ToolError(f"it did not answer in time ({type(error).__name__})") from error
        except (self._httpx.HTTPError, self._httpx.InvalidURL, OSError, UnicodeError) as error:
            raise ToolError(f"it could not be reached ({type(error).__name__})") from error

    async def _send_once(
        self, method: str, url: str, headers: Headers, content: bytes | None, files: list[FilePart] | None
    ) -> httpx.Response:
        client = self._client()
        request = client.build_request(method, url, headers=headers, content=content, files=files)
        host = request.url.host
        if self.allows_private:
            return await client.send(request, stream=True, follow_redirects=False)
        if self._factory is not None:
            check_host(host)
            return await client.send(request, stream=True, follow_redirects=False)
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = await public_addresses(host, port)
        for number, address in enumerate(addresses, 1):
            request.url = request.url.copy_with(host=address)
            request.extensions["sni_hostname"] = host
            try:
                return await client.send(request, stream=True, follow_redirects=False)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise OSError("no address")

    def _same_origin(self, one: str, other: str) -> bool:
        a, b = self._httpx.URL(one), self._httpx.URL(other)
        ports = [url.port or (443 if url.scheme == "https" else 80) for url in (a, b)]
        return a.host == b.host and (ports[0] == ports[1] or (a.scheme, b.scheme, *ports) == ("http", "https", 80, 443))

    async def _read(self, response: httpx.Response) -> Reply:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_REPLY_BYTES:
                raise ToolError(f"its reply is larger than {MAX_REPLY_BYTES} bytes")
        return Reply(
            status=response.status_code,
            reason=response.reason_phrase,
            media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
            body=bytes(body),
            charset=response.charset_encoding or "utf-8",
        )

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        known = self._clients.get(id(loop))
        if known is not None and known[0] is loop and not known[1].is_closed:
            return known[1]
        self._clients = {key: entry for key, entry in self._clients.items() if not entry[0].is_closed()}
        client = self._factory() if self._factory is not None else self._new_client()
        self._clients[id(loop)] = (loop, client)
        return client

    def _new_client(self) -> httpx.AsyncClient:
        return self._httpx.AsyncClient(
            verify=self._verification(),
            trust_env=self.allows_private,
            timeout=self._httpx.Timeout(
                connect=CONNECT_SECONDS, read=self._read_seconds, write=self._read_seconds, pool=POOL_SECONDS
            ),
        )

    def _verification(self) -> ssl.SSLContext | bool:
        if isinstance(self._ssl_verify, str):
            from pathlib import Path

            is_folder = Path(self._ssl_verify).is_dir()
            return ssl.create_default_context(
                capath=self._ssl_verify if is_folder else None, cafile=None if is_folder else self._ssl_verify
            )
        return True if self._ssl_verify is None else self._ssl_verify

    async def close(self) -> None:
        """Connections of other loops went with those loops."""
        loop = asyncio.get_running_loop()
        clients, self._clients = self._clients, {}
        for owner, client in clients.values():
            if owner is loop:
                await client.aclose()


_NOT_TO_OTHERS = frozenset({b"authorization", b"cookie", b"proxy-authorization"})


def _redirected(response: httpx.Response, url: str) -> str | None:
    if not response.has_redirect_location:
        return None
    target = urljoin(url, response.headers["location"])
    before, after = urlsplit(url).scheme, urlsplit(target).scheme
    if after != before and (before, after) != ("http", "https"):
        raise ToolError(f"it redirects from {before} to {after or 'nowhere'}, which is refused")
    return target


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def _after_redirect(
    status: int, method: str, content: bytes | None, files: list[FilePart] | None
) -> tuple[str, bytes | None, list[FilePart] | None]:
    """As browsers do: 303 reads, and 301 and 302 turn a POST into a GET."""
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        return "GET", None, None
    return method, content, files
