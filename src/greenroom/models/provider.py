"""The base of models that call a vendor's SDK: its import, its client, its errors."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, TypeVar, cast

import msgspec

from greenroom.errors import GreenroomError, MissingExtra, ModelError, ModelErrorCategory
from greenroom.models.attempts import CircuitBreaker, Replies, RetryPolicy, begin
from greenroom.models.error_reply import ErrorReply, error_in
from greenroom.models.model import BaseLlm
from greenroom.models.model_errors import model_error, new_model_error
from greenroom.models.reply import ModelReply
from greenroom.models.requests.rules import RequestRules
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

T = TypeVar("T")


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package above it
        return False


_OPTIONS = {
    "extra_headers": "headers",
    "extra_query": "params",
    "extra_body": "extra_json",
    "timeout": "timeout",
}


async def post(client: Any, path: str, arguments: JsonObject) -> JsonObject:
    """Sends arguments as JSON by a client of OpenAI's or Anthropic's SDK. Returns the JSON of the
    reply.

    The SDKs' own methods convert each argument and event by its type, which costs more than all
    else here.
    """
    reply = await client.post(path, cast_to=object, **_body_and_options(arguments))
    if isinstance(reply, str):  # not sent as JSON: its type is unknown
        return _decoded(reply)
    if not isinstance(reply, dict):
        raise _not_json(reply)
    return cast("JsonObject", reply)


async def exchange(
    client: Any, path: str, arguments: JsonObject, reply: ModelReply, *, stream: bool, sdk: str
) -> AsyncGenerator[LlmResponse]:
    """Sends arguments as `post` does, and yields the responses that `reply` makes of the answer or
    of its events.

    sdk: the client's package. Raises ErrorReply for errors that the server sends with status 200.
    """
    if not stream:
        _add_whole(reply, await post(client, path, arguments))
        yield reply.whole()
        return

    request = _body_and_options({**arguments, "stream": True})
    stream_class = importlib.import_module(sdk).AsyncStream[object]
    async with await client.post(path, cast_to=object, **request, stream=True, stream_cls=stream_class) as events:
        body = await _whole_body(events.response)
        if body is not None:
            _add_whole(reply, body)
            yield reply.whole()
            return

        try:
            async for event in events:
                if event is not None:
                    for shown in reply.add(cast("JsonObject", event)):
                        yield shown
        except (KeyError, TypeError, AttributeError) as error:
            raise _unreadable(error) from error
        except Exception as error:
            reported = _reported_by_sdk(error)
            if reported is None:
                raise
            raise reported from error

    if reply.is_complete:
        yield reply.whole()


def _add_whole(reply: ModelReply, body: JsonObject) -> None:
    error = error_in(body)
    if error is not None:
        raise error
    try:
        reply.add_whole(body)
    except (KeyError, TypeError, AttributeError) as error:
        raise _unreadable(error) from error


async def _whole_body(response: Any) -> JsonObject | None:
    """Returns the JSON body of a server that answers a request for a stream with one object: it doesn't stream, or it
    refuses. None for a stream, even if it is declared to be JSON.
    """
    content_type: str = response.headers.get("content-type", "")
    if "json" not in content_type:
        return None
    body: bytes = await response.aread()
    if body.lstrip().startswith((b"{", b"[")):
        return _decoded(body)
    return None


def _reported_by_sdk(error: Exception) -> ErrorReply | None:
    """The error of an event for which the SDK raised its own, of which it drops half. None for
    other errors.
    """
    body: Any = getattr(error, "body", None)
    if not body or getattr(error, "status_code", 0) >= 400:
        return None
    return (error_in(cast("JsonObject", body)) if isinstance(body, dict) else None) or ErrorReply.of(body)


def _decoded(text: str | bytes) -> JsonObject:
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except msgspec.DecodeError as error:
        raise _not_json(text) from error


def _not_json(reply: object) -> msgspec.ValidationError:
    return msgspec.ValidationError(f"The reply is not a JSON object: {str(reply)[:200]!r}")


def _unreadable(error: Exception) -> msgspec.ValidationError:
    """Creates the error for a reply with missing fields, or with fields of other types than the API's."""
    return msgspec.ValidationError(f"The reply does not have the API's form: {type(error).__name__}: {error}")


def _body_and_options(arguments: JsonObject) -> JsonObject:
    return {
        "body": {name: value for name, value in arguments.items() if name not in _OPTIONS},
        "options": {name: arguments[key] for key, name in _OPTIONS.items() if key in arguments},
    }


class _Deadline:
    """The deadline of a call whose replies are awaited successively in one task: `asyncio.timeout` with one timer."""

    def __init__(self, ends_at: float) -> None:
        self.timer = asyncio.get_running_loop().call_at(ends_at, self._expire)
        self._has_expired = False
        self._waiting: asyncio.Task[Any] | None = None

    async def wait_for(self, reply: Awaitable[T]) -> T:
        """Raises TimeoutError when the deadline is over."""
        task = asyncio.current_task()
        assert task is not None
        cancellations = task.cancelling()
        self._waiting = task
        if self._has_expired:
            task.cancel()

        try:
            return await reply
        except asyncio.CancelledError:
            if self._has_expired and task.uncancel() <= cancellations:
                raise TimeoutError from None
            raise
        finally:
            self._waiting = None

    def _expire(self) -> None:
        self._has_expired = True
        if self._waiting is not None:
            self._waiting.cancel()


class ProviderLlm(BaseLlm):
    """A model that is called through a vendor's SDK, which is imported in a thread, with its first request or by
    `load`.

    A call has a deadline: `timeout` of the request's `http_options`, else `timeout_seconds`. Until
    then it is repeated as `retry_options` there say, else `retry_policy`; the SDK's own retries are
    off. After five failures in a row, calls are refused for 30 seconds.

    A subclass names the package and its extra, makes the client, converts requests, and sends them.
    Raises MissingExtra when it is constructed without the package.
    """

    extra: ClassVar[str]
    package: ClassVar[str]
    rules: ClassVar[RequestRules]
    """Of the vendor, for names, ids and schemas."""

    timeout_seconds: float = 600.0
    retry_policy: RetryPolicy = RetryPolicy()

    def __init__(self, model: str, *, client: Any = None) -> None:
        super().__init__(model=model)
        if not is_installed(self.package):
            raise MissingExtra(self.extra, self.package)
        self._given_client = client
        self._made_client = None
        self.breaker = CircuitBreaker()
        self._loading: asyncio.Lock | None = None

    @abstractmethod
    def make_client(self) -> Any:
        """Creates a client of the SDK. Called in a thread; its exceptions are reported as authentication errors."""

    @abstractmethod
    def convert(self, request: LlmRequest) -> Any:
        """Returns the arguments of the SDK's call. Raises MessageConversionError for unsupported content."""

    @abstractmethod
    def send(self, client: Any, arguments: Any, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        """Yields the responses; its exceptions become a ModelError."""

    def rules_for(self, request: LlmRequest) -> RequestRules:
        """The rules of the model that the request names."""
        return self.rules

    def secrets(self) -> Sequence[str | None]:
        """Strings that must not occur in error messages."""
        return ()

    async def load(self) -> Any:
        """Imports the SDK and makes the client, off the event loop. Returns the client."""
        client = self._made_client
        if client is None:
            self._loading = self._loading or asyncio.Lock()
            async with self._loading:
                client = self._made_client or await asyncio.to_thread(self._load)
                self._made_client = client
        return client

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        options: JsonObject = llm_request.config.http_options or {}
        given_ms: float | None = options.get("timeout")
        seconds = given_ms / 1000 if given_ms else self.timeout_seconds

        retry_options: JsonObject | None = options.get("retry_options")
        if retry_options:
            policy = RetryPolicy.of(retry_options)
        else:
            policy = self.retry_policy

        self.breaker.check(self.model)
        client = self._made_client or await self.load()
        prepared, names = self.rules_for(llm_request).prepare(llm_request)
        arguments = self.convert(prepared)
        ends_at = asyncio.get_running_loop().time() + seconds

        def start() -> Replies:
            return self._attempt(client, arguments, stream=stream, ends_at=ends_at)

        replies, first = await begin(start, policy, timeout_seconds=seconds)
        async with aclosing(replies):
            if first is not None:
                if names is not None:
                    names.restore(first)
                yield first

            async for reply in replies:
                if names is not None:
                    names.restore(reply)
                yield reply

    async def _attempt(
        self,
        client: Any,
        arguments: Any,
        *,
        stream: bool,
        ends_at: float,
    ) -> Replies:
        complete: LlmResponse | None = None
        deadline = _Deadline(ends_at)
        try:
            async with aclosing(self.send(client, arguments, stream=stream)) as responses:
                while (response := await deadline.wait_for(anext(responses, None))) is not None:
                    if not response.partial:
                        complete = response
                    elif stream:
                        yield response

            if complete is None:
                raise self.broken("the stream ended before its end")
        except ModelError as error:
            self.breaker.failed(error)
            raise
        except GreenroomError:
            raise
        except TimeoutError as error:
            late = new_model_error(
                f"{self.model}: Timeout: no whole answer before the deadline of the call",
                model=self.model,
                category=ModelErrorCategory.TIMEOUT_ERROR,
            )
            self.breaker.failed(late)
            raise late from error
        except Exception as error:  # SDKs let the errors of their HTTP and JSON libraries through
            converted = model_error(error, model=self.model, secrets=self.secrets())
            self.breaker.failed(converted)
            raise converted from error
        finally:
            deadline.timer.cancel()

        self.breaker.succeeded()
        yield complete

    async def count_tokens(self, llm_request: LlmRequest) -> int | None:
        client = self._given_client or self._made_client or await self.load()
        arguments = self.convert(self.rules_for(llm_request).prepare(llm_request).request)
        try:
            return await self.count(client, arguments)
        except Exception as error:  # as above
            raise model_error(error, model=self.model, secrets=self.secrets()) from error

    async def count(self, client: Any, arguments: Any) -> int | None:
        """The prompt's tokens as the provider counts them; None if it doesn't."""
        return None

    async def close(self) -> None:
        client = self._made_client
        self._made_client = None
        if client is not None and self._given_client is None:
            await self.close_client(client)

    async def close_client(self, client: Any) -> None:
        await client.close()

    def broken(self, reason: str) -> ModelError:
        return new_model_error(
            f"{self.model}: Network error: {reason}", model=self.model, category=ModelErrorCategory.NETWORK_ERROR
        )

    def _load(self) -> Any:
        importlib.import_module(self.package)
        importlib.import_module("tenacity")

        if self._given_client is not None:
            with_options = getattr(self._given_client, "with_options", None)
            if with_options is not None:
                return with_options(max_retries=0)
            return self._given_client

        try:
            return self.make_client()
        except GreenroomError:
            raise
        except Exception as error:  # a missing key or project, by whatever name the SDK has for it
            converted = model_error(error, model=self.model, secrets=self.secrets())
            raise new_model_error(
                converted.detail, model=self.model, category=ModelErrorCategory.AUTH_ERROR, retryable=False
            ) from error
