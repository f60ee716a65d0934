"""Requests to models, their responses, and the messages of live connections."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, MutableSequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from greenroom.records.answer_metadata import (
    CitationMetadata,
    GenerateContentResponseUsageMetadata,
    GroundingMetadata,
    LogprobsResult,
)
from greenroom.records.base import JsonObject, JsonValue, Record, empty_map
from greenroom.records.content import (
    ActivityEnd,
    ActivityStart,
    Blob,
    Content,
    FunctionCall,
    FunctionResponse,
    Transcription,
)
from greenroom.records.copy_on_write import CopyOnReadList, CopyOnWriteList
from greenroom.records.genai_types import own, own_content
from greenroom.records.generation import GenerateContentConfig, LiveConnectConfig
from greenroom.records.tool_declaration import FunctionDeclaration, Tool


class ContextCacheConfig(Record, kw_only=True):
    """Caching of the stable prefix of an app's prompts by providers: system instruction, tools and
    earlier contents.
    """

    cache_intervals: Annotated[int, Meta(ge=1, le=100)] = 10
    """Number of runs after which a cache is renewed."""
    ttl_seconds: Annotated[int, Meta(gt=0)] = 1800
    """Seconds for which the provider keeps a cache."""
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    """Smaller prompts are not cached; the previous prompt is measured."""
    create_http_options: JsonObject | None = None
    """HTTP options of the request that creates a cache. Source: ADK."""

    if TYPE_CHECKING:  # type checkers take it for an argument of the constructor; see `from_shorthands`
        max_invocations: int = 10
    else:

        @property
        def max_invocations(self) -> int:
            """Another name of `cache_intervals`."""
            return self.cache_intervals

    @property
    def ttl_string(self) -> str:
        """`ttl_seconds` as providers take it, such as `1800s`."""
        return f"{self.ttl_seconds}s"

    @classmethod
    def from_shorthands(cls, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        if "max_invocations" in arguments:
            arguments["cache_intervals"] = arguments.pop("max_invocations")
        return super().from_shorthands(*args, **arguments)

    def __post_init__(self) -> None:
        if not 1 <= self.cache_intervals <= 100 or self.ttl_seconds <= 0 or self.min_tokens < 0:
            raise ValueError("cache_intervals must be from 1 to 100, ttl_seconds above 0, min_tokens 0 or more")


class LlmRequest(Record, kw_only=True, gc=True):
    """A request to a model. The list of contents is this request's own; the contents in it belong to the log, and are
    not changed: code that may do so gets them within `own_contents`.
    """

    model: str | None = None
    contents: MutableSequence[Content] = msgspec.field(default_factory=CopyOnWriteList[Content])
    config: GenerateContentConfig = msgspec.field(default_factory=GenerateContentConfig)
    live_connect_config: LiveConnectConfig | None = None
    tools_dict: dict[str, Any] = msgspec.field(default_factory=empty_map)
    """The tools of the declarations, by name; never serialised."""
    previous_interaction_id: str | None = None
    cache_config: ContextCacheConfig | None = None
    """The app's configuration of caching."""
    cache_metadata: JsonObject | None = None
    """The cache that the agent's newest reply used."""
    cacheable_contents_token_count: int | None = None
    """Tokens of the agent's newest prompt."""
    is_on_vertex: bool | None = None
    """Whether the model is reached through Vertex AI; None if that is unknown."""

    @contextlib.contextmanager
    def own_contents(self) -> Generator[None]:
        """Makes `contents` yield copies within the block, which may be changed in place.

        Objects of google.genai that its code puts into the request become records.
        """
        copies = CopyOnReadList(list(self.contents))
        self.contents = copies
        try:
            yield
        finally:
            if self.contents is copies:
                copies.replace_own_items(own_content)
                self.contents = copies.as_they_are()
            else:
                self.contents = CopyOnWriteList(map(own_content, self.contents))
            self.config = own(self.config)

    @property
    def system_instructions(self) -> list[str]:
        """The texts of the system instruction, one for each part."""
        instruction = self.config.system_instruction
        if isinstance(instruction, str):
            return [instruction] if instruction else []
        return [part.text for part in (instruction.parts if instruction is not None else None) or () if part.text]

    @property
    def first_system_instruction(self) -> str | None:
        return next(iter(self.system_instructions), None)

    def append_instructions(self, instructions: Iterable[str]) -> None:
        for text in instructions:
            if text:
                self.config.append_system_text(text)

    def add_declaration(self, declaration: FunctionDeclaration, tool: object) -> None:
        """Declares a function; all share one `Tool` entry. A later tool of the same name replaces the earlier."""
        if self.config.tools is None:
            self.config.tools = []
        for entry in self.config.tools:
            if entry.function_declarations is not None:
                break
        else:
            entry = Tool(function_declarations=[])
            self.config.tools.append(entry)

        declarations = [d for d in entry.function_declarations or () if d.name != declaration.name]
        entry.function_declarations = [*declarations, declaration]
        if declaration.name:
            self.tools_dict[declaration.name] = tool

    def append_tools(self, tools: Iterable[Any]) -> None:
        """Declares each `BaseTool` that has a declaration."""
        for tool in tools:
            declaration = tool._get_declaration()
            if declaration is not None:
                self.add_declaration(declaration, tool)

    def mark(self, entry: Tool) -> None:
        """Adds a tool that the model's service runs, unless it is there already."""
        tools = self.config.tools or []
        if entry not in tools:
            self.config.tools = [*tools, entry]

    def function_declarations(self) -> list[FunctionDeclaration]:
        return [d for entry in self.config.tools or () for d in entry.function_declarations or ()]

    def set_output_schema(self, schema: JsonValue) -> None:
        """Requests JSON of this schema; `schema` as in `GenerateContentConfig.response_schema`."""
        self.config.response_schema = schema
        self.config.response_mime_type = "application/json"


class LlmResponse(Record, kw_only=True):
    """A chunk of a reply (`partial`: only the new text), or a whole reply (the last of a stream, or
    the only one).
    """

    content: Content | None = None
    """The message."""
    partial: bool | None = None
    """Whether this is a streamed piece of a message that follows complete."""
    turn_complete: bool | None = None
    """Whether a live model has ended its turn."""
    interrupted: bool | None = None
    """Whether the message was cut off."""
    error_code: str | None = None
    """A finish reason, or the class name of an error; a reply may carry content and an error."""
    error_message: str | None = None
    """The error's text."""
    finish_reason: str | None = None
    """The reason why the model stopped."""
    usage_metadata: GenerateContentResponseUsageMetadata | None = None
    """Token counts of the model call."""
    model_version: str | None = None
    """The model that answered, as the provider reports it."""
    grounding_metadata: GroundingMetadata | None = None
    """Sources that the answer is based on."""
    citation_metadata: CitationMetadata | None = None
    """Citations in the answer."""
    avg_logprobs: float | None = None
    """Mean log probability of the answer's tokens."""
    logprobs_result: LogprobsResult | None = None
    """Log probabilities of single tokens."""
    custom_metadata: JsonObject | None = None
    """Free-form data of the application."""
    input_transcription: Transcription | None = None
    """Transcript of the user's speech."""
    output_transcription: Transcription | None = None
    """Transcript of the model's speech."""
    live_session_resumption_update: JsonObject | None = None
    """The provider's handle for resuming a live session."""
    live_session_id: str | None = None
    """The provider's id of the live session."""
    go_away: JsonObject | None = None
    """The provider's notice that it will close the live connection."""
    voice_activity: JsonObject | None = None
    """Start or end of the user's speech."""
    turn_complete_reason: str | None = None
    """The reason why a live model ended its turn."""
    interaction_id: str | None = None
    """The provider's id of a stored interaction."""
    interaction_status: str | None = None
    """The status of that interaction."""
    environment_id: str | None = None
    """The provider's id of the execution environment."""
    cache_metadata: JsonObject | None = None
    """The state of the context cache used by the call."""

    @classmethod
    def create(cls, generate_content_response: Any) -> LlmResponse:
        """Converts a `GenerateContentResponse` of `google-genai`: its first candidate, or why there is none."""
        reply: JsonObject = generate_content_response.model_dump(mode="json", by_alias=True, exclude_none=True)
        shared = {name: reply[name] for name in ("usageMetadata", "modelVersion") if name in reply}
        if not reply.get("candidates"):
            feedback = reply.get("promptFeedback")
            if feedback is None:
                return cls.model_validate({"content": {"role": "model", "parts": []}, **shared})
            code = feedback.get("blockReason")
            message = feedback.get("blockReasonMessage")
            return cls.model_validate({"errorCode": code, "errorMessage": message, **shared})

        candidate = reply["candidates"][0]
        reason = candidate.get("finishReason")
        if candidate.get("content", {}).get("parts") or reason == "STOP":
            return cls.model_validate({**candidate, **shared})

        fields = {name: value for name, value in candidate.items() if name != "content"}
        message = candidate.get("finishMessage")
        return cls.model_validate({**fields, "errorCode": reason, "errorMessage": message, **shared})

    def get_function_calls(self) -> list[FunctionCall]:
        parts = (self.content.parts if self.content is not None else None) or ()
        return [part.function_call for part in parts if part.function_call is not None]

    def get_function_responses(self) -> list[FunctionResponse]:
        parts = (self.content.parts if self.content is not None else None) or ()
        return [part.function_response for part in parts if part.function_response is not None]


class AudioStreamEnd(Record, kw_only=True):
    """The audio pauses, as when a microphone is switched off: the model should process the audio so far."""


class LiveRequest(Record, kw_only=True, rename=None):
    """A message for a live connection; snake_case on the wire, as ADK's clients send it.

    If several fields are set, the first counts, in the order activity_start, activity_end, audio_stream_end, blob,
    content; state_delta and close always count.
    """

    content: Content | None = None
    """A user's turn, or function responses."""
    blob: Blob | None = None
    activity_start: ActivityStart | None = None
    activity_end: ActivityEnd | None = None
    audio_stream_end: bool | None = None
    close: bool = False
    partial: bool | None = None
    """Whether more of the turn follows."""
    state_delta: JsonObject | None = None
