"""The contract of a model, and of a live, two-way connection to one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from enum import StrEnum
from typing import Any, TypeAlias, cast

import msgspec

from greenroom.errors import AgentConfigError, ModelError
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject
from greenroom.records.content import ActivityEnd, ActivityStart, Blob, Content
from greenroom.records.declarative import Declarative
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import AudioStreamEnd, LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Schema


class ServiceTier(StrEnum):
    """Values of `service_tier` of a request or run; the names of a vendor's own tiers are taken, too."""

    FLEX = "flex"
    STANDARD = "standard"
    PRIORITY = "priority"
    DEFERRED = "deferred"


class AnthropicGenerateContentConfig(GenerateContentConfig, kw_only=True):
    """A generation config with Claude's `effort`. Raises ValueError beside a thinking level."""

    effort: str | None = None
    """low, medium, high, xhigh or max"""

    def __post_init__(self) -> None:
        _check_effort(self, "thinking_level", allowed=("low", "medium", "high", "xhigh", "max"))


class OpenAIGenerateContentConfig(GenerateContentConfig, kw_only=True):
    """A generation config with OpenAI's `effort`. Raises ValueError beside a thinking level or
    budget.
    """

    effort: str | None = None
    """The effort of reasoning, as the service names it."""

    def __post_init__(self) -> None:
        _check_effort(self, "thinking_level", "thinking_budget")


def _check_effort(
    config: AnthropicGenerateContentConfig | OpenAIGenerateContentConfig, *others: str, allowed: Sequence[str] = ()
) -> None:
    if config.effort is not None and allowed and config.effort not in allowed:
        raise ValueError(f"effort must be one of {', '.join(allowed)}, not {config.effort!r}")
    for other in others:
        if config.effort is not None and getattr(config.thinking_config, other, None) is not None:
            raise ValueError(f"effort and thinking_config.{other} can't both be set")


def effort_of(config: GenerateContentConfig) -> str | None:
    return getattr(config, "effort", None)


RealtimeInput: TypeAlias = Blob | ActivityStart | ActivityEnd | AudioStreamEnd


class BaseLlmConnection(ABC):
    """A connection to a live model. Its owner sends from one task and receives in another.

    When the connection is lost, sending and receiving raise ModelError with `retryable`; another error of the model is
    a ModelError without it.
    """

    @abstractmethod
    async def send_history(self, history: Sequence[Content]) -> None:
        """Sends the conversation so far; the model answers if its last content is the user's."""

    @abstractmethod
    async def send_content(self, content: Content) -> None:
        """Sends a user's turn, or the rest of one, or function responses; the model answers."""

    async def send_partial_content(self, content: Content) -> bool:
        """Sends a piece of a user's turn, more of which will follow, so that the model waits.

        False where a connection takes whole turns only: nothing was sent, and the caller sends the
        piece with the rest.
        """
        return False

    @abstractmethod
    async def send_realtime(self, data: RealtimeInput) -> None:
        """Sends a chunk of audio, video or an image, or the start or end of the user's speech."""

    @abstractmethod
    def receive(self) -> AsyncIterator[LlmResponse]:
        """Yields the model's responses, turn after turn, until either side closes the connection.

        Text and transcriptions: pieces with `partial`, then the whole without; a transcription's
        whole is `finished`. Media: content without `partial`. Function calls: whole.
        `turn_complete` and `interrupted` end a turn.
        """

    @abstractmethod
    async def close(self) -> None:
        """Closes the connection: `receive` yields the messages that have arrived, and ends."""


class LlmCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Abilities that not all models have."""

    output_schema_and_tools: bool = False
    """The model takes both in one request, so that no tool is needed to give the answer."""


class BaseLlm(Declarative, ABC):
    """A model by name. One instance serves many runs at once.

    A subclass may declare fields of its own as annotations. The contents of a request belong to the session's log: a
    model must not change them, but copy them.
    """

    model: str

    @classmethod
    def supported_models(cls) -> list[str]:
        """Patterns of the names for which `LLMRegistry.register` registers the class."""
        return []

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities()

    @property
    def provider_name(self) -> str:
        """The provider's name in traces, by OpenTelemetry's conventions if they list it."""
        return type(self).__name__

    @property
    def is_on_vertex(self) -> bool | None:
        """Whether the model is reached through Vertex AI, which has built-in tools of its own;
        None: unknown.
        """
        return None

    @abstractmethod
    def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        """Answers a request.

        Not streaming: exactly one response. Streaming: any number with `partial=True`, each with
        only the new content, then one without `partial` that holds the whole. Raises ModelError
        when the provider fails; an answer cut short by the provider's rules is a response with
        `error_code`.
        """

    async def count_tokens(self, llm_request: LlmRequest) -> int | None:
        """The provider's count of the prompt's tokens; None if it has none. Raises ModelError when
        it fails.
        """
        return None

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        """Opens a live connection. Raises NotImplementedError for models that have none."""
        raise NotImplementedError(f"{self.model} has no live connection")

    @property
    def names_to_resolve(self) -> list[str]:
        """Names that are resolved when the model is called, so that the server can check them when
        it starts.
        """
        return []

    async def close(self) -> None:
        """Releases connections, threads and files."""


async def ask(model: BaseLlm, request: LlmRequest) -> tuple[str, LlmResponse]:
    """The text of a model's answer, without thoughts, and its last response. An answer may be cut
    off at its limit.

    Raises ModelError, also for another answer with an `error_code`.
    """
    texts: list[str] = []
    last = LlmResponse()
    async with aclosing(cast("AsyncGenerator[LlmResponse]", model.generate_content_async(request))) as responses:
        async for last in responses:
            if last.error_code is not None and last.finish_reason != FinishReason.MAX_TOKENS:
                raise ModelError(f"{last.error_code}: {last.error_message}", model=model.model)
            if not last.partial and last.content is not None:
                texts += [part.text for part in last.content.parts or () if part.text and not part.thought]

    return "".join(texts), last


def output_schema(config: GenerateContentConfig) -> JsonObject | None:
    """The JSON Schema of the wanted answer, if any. Raises AgentConfigError for a type that has no
    schema.
    """
    wanted: Any
    if config.response_json_schema is not None:
        wanted = config.response_json_schema
    else:
        wanted = config.response_schema

    if wanted is None:
        return None

    if isinstance(wanted, dict):
        plain = cast("JsonObject", wanted)
        # A Gemini schema that came as JSON: its type names are upper case, which plain JSON Schema's never are.
        if isinstance(plain.get("type"), str) and plain["type"].isupper():
            return output_schema(GenerateContentConfig(response_schema=msgspec.convert(plain, Schema)))
        return plain

    if isinstance(wanted, Schema):
        return FunctionDeclaration(parameters=wanted).json_schema()

    model_json_schema = getattr(wanted, "model_json_schema", None)
    if model_json_schema is not None:  # a pydantic model, without importing pydantic
        return model_json_schema()

    try:
        return msgspec.json.schema(wanted)
    except TypeError as error:
        raise AgentConfigError(f"The output schema {wanted!r} can't be written as JSON Schema: {error}") from error
