"""Parts of connections to live models: errors, the end of a connection, and texts that arrive in
pieces.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from greenroom.errors import GreenroomError, ModelError, ModelErrorCategory
from greenroom.models.model import BaseLlmConnection
from greenroom.models.model_errors import category_of, model_error, new_model_error
from greenroom.models.requests.rules import RequestRules
from greenroom.models.requests.tool_names import ToolNames
from greenroom.records.content import Content, Transcription
from greenroom.records.model_exchange import LlmResponse

NORMAL = 1000
_LOST = frozenset({1001, 1005, 1006, 1012, 1013, 1014})
_FAILED = 1011


class LiveConnection(BaseLlmConnection):
    """A connection over a WebSocket of a vendor's SDK."""

    def __init__(self, *, model: str, secrets: Sequence[str | None]) -> None:
        self._model = model
        self._secrets = secrets
        self._is_closed = False
        self._rules: RequestRules | None = None
        self._names: ToolNames | None = None

    def use(self, rules: RequestRules, names: ToolNames | None) -> None:
        """Sets the rules, and the names of the tools with which the connection was opened."""
        self._rules = rules
        self._names = names

    def fitted(self, contents: Sequence[Content]) -> Sequence[Content]:
        """Contents with calls beside their responses, and the names of tools that the vendor knows."""
        if self._rules is None:
            return contents
        return self._rules.fit_contents(contents, self._names)

    @abstractmethod
    def replies(self) -> AsyncGenerator[LlmResponse]:
        """Yields until the WebSocket is closed, which is whatever the SDK raises."""

    @abstractmethod
    async def close_socket(self) -> None: ...

    async def receive(self) -> AsyncIterator[LlmResponse]:
        try:
            async with aclosing(self.replies()) as replies:
                async for reply in replies:
                    if self._names is not None:
                        self._names.restore(reply)
                    yield reply
        except GreenroomError:
            raise
        except Exception as error:  # SDKs let the errors of their WebSocket and JSON libraries through
            if self._is_closed or ((closed := _close_of(error)) is not None and closed[0] == NORMAL):
                return
            raise self.error(error) from error

    async def close(self) -> None:
        self._is_closed = True
        await self.close_socket()

    async def sent(self, sending: Awaitable[None]) -> None:
        """Awaits a send by the SDK. Raises ModelError for the SDK's errors."""
        try:
            await sending
        except GreenroomError:
            raise
        except Exception as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> ModelError:
        return connection_error(error, model=self._model, secrets=self._secrets)


def connection_error(error: Exception, *, model: str, secrets: Sequence[str | None]) -> ModelError:
    """Converts a refused handshake, a lost connection or an unreadable message to a ModelError."""
    closed = _close_of(error)
    if closed is not None:
        code, reason = closed
        category = _category(code, reason)
        detail = f"{model}: The connection was closed ({code}): {reason}".removesuffix(": ")
        for secret in filter(None, secrets):
            detail = detail.replace(secret, "…")
        return new_model_error(detail, model=model, category=category)

    if isinstance(error, ValueError):
        return new_model_error(
            f"{model}: Server error: the message can't be read: {error}",
            model=model,
            category=ModelErrorCategory.SERVER_ERROR,
        )

    body = getattr(getattr(error, "response", None), "body", None)  # of an answer without WebSocket
    if isinstance(body, (bytes, bytearray)):
        message = body.decode(errors="replace")[:1000]
    else:
        message = None

    return model_error(error, model=model, secrets=secrets, message=message)


def _close_of(error: Any) -> tuple[int, str] | None:
    """Code and reason of the close frame, as `websockets` and Gemini's SDK report it; 1006 if there
    was none.
    """
    if hasattr(error, "rcvd"):
        if error.rcvd is not None:
            return (error.rcvd.code, error.rcvd.reason)
        return (1006, "")

    code = getattr(error, "code", None)
    if isinstance(code, int) and 1000 <= code < 5000:
        return code, str(getattr(error, "details", None) or "")

    return None


def _category(code: int, reason: str) -> ModelErrorCategory:
    """The category of a close code. Gemini also uses 1008 to end a connection whose time is up; otherwise the reason
    describes the fault.
    """
    if code in _LOST or code == NORMAL or (code == 1008 and "aborted" in reason):
        return ModelErrorCategory.NETWORK_ERROR
    if code == _FAILED:
        return ModelErrorCategory.SERVER_ERROR

    category = category_of(Exception(reason))
    if category is ModelErrorCategory.UNKNOWN_ERROR:
        return ModelErrorCategory.CLIENT_ERROR

    return category


class Transcript:
    """Collects the transcript of one side, which arrives in pieces.

    to_response: makes the response for a piece, or for the complete transcript.
    """

    def __init__(self, to_response: Callable[[Transcription], LlmResponse]) -> None:
        self._to_response = to_response
        self._pieces: list[str] = []

    def add(self, text: str, *, language_code: str | None = None) -> Iterator[LlmResponse]:
        if text:
            self._pieces.append(text)
            piece = self._to_response(Transcription(text=text, finished=False, language_code=language_code))
            piece.partial = True
            yield piece

    def end(
        self,
        text: str | None = None,
        *,
        language_code: str | None = None,
    ) -> Iterator[LlmResponse]:
        """The whole: the pieces, or another text that the vendor gives. Nothing if there is none."""
        complete = text if text is not None else "".join(self._pieces)
        self._pieces.clear()
        if complete:
            yield self._to_response(Transcription(text=complete, finished=True, language_code=language_code))


def heard() -> Transcript:
    return Transcript(lambda transcript: LlmResponse(input_transcription=transcript))


def spoken() -> Transcript:
    return Transcript(lambda transcript: LlmResponse(output_transcription=transcript))
