"""HTTP calls with retries."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from greenroom.client.problem import error_of
from greenroom.errors import CallerError, GreenroomError, MissingExtra, Unavailable
from greenroom.records import wire

try:
    import httpx
    import httpx_sse
    import msgspec
    import tenacity
except ImportError as missing:
    raise MissingExtra("client", missing.name or "httpx") from missing

T = TypeVar("T")

_BUSY = frozenset({429, 503})
"""The request was not processed, so any request may be retried."""

_GATEWAY_ERRORS = frozenset({502, 504})
"""Sent by proxies; the request may have been processed."""

_IDEMPOTENT_METHODS = frozenset({"GET", "DELETE"})
_IDLE_SECONDS = 60.0
"""Servers send a comment every 15 s, so a stream without data for this long is dead."""


def path(*segments: str) -> str:
    """The path of a resource; ids may contain slashes."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


class TryAgain(Exception):
    """A retryable failure. error: raised after the last attempt. after: seconds to wait, from `Retry-After`."""

    def __init__(self, error: GreenroomError, after: float = 0.0) -> None:
        super().__init__(error.detail)
        self.error = error
        self.after = after


class Connection:
    def __init__(
        self, url: str, *, api_key: str | None, headers: Mapping[str, str] | None, timeout_seconds: float,
        retry_seconds: float,
    ) -> None:  # fmt: skip
        """Raises CallerError for an invalid URL or key."""
        if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise CallerError("An API key must be printable ASCII without spaces")

        own = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._url = _shown(url)
        self._retry_seconds = retry_seconds
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={**own, **(headers or {})},
            timeout=timeout_seconds,
            verify=httpx.URL(url).scheme == "https",  # reading the certificates takes 50 ms
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),  # each stream uses one
        )

    async def call(self, method: str, path: str, reply: type[T], **options: Any) -> T:
        """Sends a request, with the options of `send`, and decodes the reply. Raises as `send` and `read` do."""
        data, _ = await self.send(method, path, **options)
        return self.read(data, reply)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """Sends a request. Returns the body and headers of the reply.

        is_repeatable: whether it is idempotent; default: GET and DELETE are. Raises the server's
        error, or Unavailable without an answer.
        """
        content = None if body is None else wire.encode(body)
        sent = {**({} if body is None else {"content-type": "application/json"}), **(headers or {})}
        params = {name: value for name, value in (query or {}).items() if value is not None}
        again = method in _IDEMPOTENT_METHODS if is_repeatable is None else is_repeatable

        async def attempt() -> tuple[bytes, Mapping[str, str]]:
            with self._broken(is_repeatable=again):
                answer = await self._http.request(method, path, content=content, params=params, headers=sent)
            self._check(answer, is_repeatable=again)
            return answer.content, answer.headers

        return await self._retrying(attempt)

    def read(self, data: bytes, reply: type[T]) -> T:
        """Decodes a reply. Raises Unavailable if it is not one of a greenroom server."""
        try:
            return _decoder(reply)(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self._url} is not a greenroom server: {error}") from error

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, last_event_id: str
    ) -> AsyncGenerator[AsyncGenerator[httpx_sse.ServerSentEvent]]:
        """Opens a stream of events after an event id. Raises TryAgain if the connection is lost."""
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if last_event_id:
            headers["last-event-id"] = last_event_id
        timeout = httpx.Timeout(self._http.timeout.connect, read=_IDLE_SECONDS)
        request = self._http.build_request("GET", path, headers=headers, timeout=timeout)

        async def attempt() -> httpx.Response:
            with self._broken():
                opened = await self._http.send(request, stream=True)
                try:
                    kind = opened.headers.get("content-type", "")
                    if not opened.is_success:
                        await opened.aread()
                    self._check(opened)
                    if not kind.startswith("text/event-stream"):
                        raise Unavailable(f"{self._url} is not a greenroom server: content type {kind!r}")
                except BaseException:
                    await opened.aclose()
                    raise

                return opened

        async with contextlib.aclosing(await self._retrying(attempt)) as response:
            with self._broken():
                async with contextlib.aclosing(httpx_sse.EventSource(response).aiter_sse()) as frames:
                    yield frames

    async def download(self, path: str, target: Path) -> None:
        """Writes the body of a reply into a file, which is there only if it is whole. Raises as `send` does."""
        request = self._http.build_request("GET", path, timeout=httpx.Timeout(self._http.timeout.connect, read=None))
        part = target.with_name(target.name + ".part")

        async def attempt() -> None:
            with self._broken():
                async with contextlib.aclosing(await self._http.send(request, stream=True)) as answer:
                    if not answer.is_success:
                        await answer.aread()
                    self._check(answer)
                    with part.open("wb") as file:
                        async for chunk in answer.aiter_bytes():
                            file.write(chunk)

        try:
            await self._retrying(attempt)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    async def close(self) -> None:
        await self._http.aclose()

    @contextlib.contextmanager
    def _broken(self, *, is_repeatable: bool = True) -> Any:
        """Translates transport errors, to TryAgain if the request may be retried."""
        try:
            yield
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
            raise CallerError(f"The request can't be sent: {error}") from error
        except httpx.TransportError as error:
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if is_repeatable or isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
                raise TryAgain(Unavailable(f"No answer from {self._url}: {words}")) from error
            raise Unavailable(
                f"{self._url} closed the connection; it may have processed the request: {words}"
            ) from error

    def _check(self, answer: httpx.Response, *, is_repeatable: bool = True) -> None:
        if answer.is_success:
            return
        if answer.has_redirect_location:
            raise CallerError(f"{self._url} redirects to {answer.headers['location']}: use that URL")
        error = error_of(answer.status_code, answer.content)
        if answer.status_code in _BUSY or (is_repeatable and answer.status_code in _GATEWAY_ERRORS):
            after = answer.headers.get("retry-after", "")
            raise TryAgain(error, float(after) if after.isdecimal() else 0.0)
        raise error

    async def _retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TryAgain),
            stop=tenacity.stop_before_delay(self._retry_seconds),
            wait=_wait,
            reraise=True,
        )

        try:
            return await retrying(attempt)
        except TryAgain as last:
            raise last.error from last


_back_off = tenacity.wait_random_exponential(multiplier=0.1, max=5)


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    return max(_back_off(state), error.after if isinstance(error, TryAgain) else 0)


def _shown(url: str) -> str:
    """The URL without credentials, for error messages. Raises CallerError."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = None
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host:
        raise CallerError(f"{url!r} is not the URL of a server, such as http://127.0.0.1:8000")
    return str(parsed.copy_with(username=None, password=None)).rstrip("/")


@cache
def _decoder(reply: type[T]) -> Callable[[bytes], T]:
    return wire.decoder(reply)
