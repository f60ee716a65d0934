"""The configuration of a model call. Source of names: the Gemini API's GenerateContentConfig."""

from __future__ import annotations

from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import Content, Part
from greenroom.records.tool_declaration import Tool


class ThinkingConfig(Record, kw_only=True):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None


class SafetySetting(Record, kw_only=True):
    category: str | None = None
    threshold: str | None = None
    method: str | None = None


class FunctionCallingConfig(Record, kw_only=True):
    """-"""

    mode: str | None = None
    """AUTO, ANY, NONE or VALIDATED."""
    allowed_function_names: list[str] | None = None
    stream_function_call_arguments: bool | None = None


class ToolConfig(Record, kw_only=True):
    function_calling_config: FunctionCallingConfig | None = None
    retrieval_config: JsonObject | None = None
    include_server_side_tool_invocations: bool | None = None


class GenerateContentConfig(Record, kw_only=True, gc=True):
    """Every field is optional; providers ignore what they don't support. The last five have no
    effect here.
    """

    system_instruction: str | Content | None = None
    """Text, or anything that a Content can be made from."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    candidate_count: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    response_logprobs: bool | None = None
    logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    response_mime_type: str | None = None
    response_schema: JsonValue = None
    """A JSON Schema, a `Schema`, or a Python type that a schema can be made from."""
    response_json_schema: JsonValue = None
    safety_settings: list[SafetySetting] | None = None
    tools: list[Tool] | None = None
    tool_config: ToolConfig | None = None
    labels: dict[str, str] | None = None
    cached_content: str | None = None
    response_modalities: list[str] | None = None
    media_resolution: str | None = None
    speech_config: JsonValue = None
    audio_timestamp: bool | None = None
    thinking_config: ThinkingConfig | None = None
    image_config: JsonObject | None = None
    routing_config: JsonObject | None = None
    model_selection_config: JsonObject | None = None
    http_options: JsonObject | None = None
    service_tier: str | None = None
    automatic_function_calling: JsonObject | None = None
    should_return_http_response: bool | None = None
    enable_enhanced_civic_answers: bool | None = None
    model_armor_config: JsonObject | None = None
    audio_transcription_config: JsonObject | None = None

    def system_text(self) -> str:
        """The system instruction as one text; empty without one."""
        instruction = self.system_instruction
        if instruction is None:
            return ""
        return instruction if isinstance(instruction, str) else instruction.text()

    def append_system_text(self, text: str) -> None:
        """Appends a paragraph to the system instruction."""
        if isinstance(self.system_instruction, Content):
            parts = [*(self.system_instruction.parts or ()), Part(text=text)]
            self.system_instruction = Content(role=self.system_instruction.role, parts=parts)
        elif self.system_instruction:
            self.system_instruction = f"{self.system_instruction}\n\n{text}"
        else:
            self.system_instruction = text


class LiveConnectConfig(Record, kw_only=True):
    """Settings of a live connection, in addition to those of `GenerateContentConfig`."""

    response_modalities: list[str] | None = None
    speech_config: JsonValue = None
    system_instruction: str | Content | None = None
    tools: list[Tool] | None = None
    input_audio_transcription: JsonObject | None = None
    output_audio_transcription: JsonObject | None = None
    realtime_input_config: JsonObject | None = None
    session_resumption: JsonObject | None = None
    context_window_compression: JsonObject | None = None
    enable_affective_dialog: bool | None = None
    proactivity: JsonObject | None = None
    explicit_vad_signal: bool | None = None
    generation_config: JsonObject | None = None
    http_options: JsonObject | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    max_output_tokens: int | None = None
    media_resolution: str | None = None
    seed: int | None = None
    thinking_config: ThinkingConfig | None = None
    safety_settings: list[SafetySetting] | None = None
    history_config: JsonObject | None = None
    avatar_config: JsonObject | None = None
    translation_config: JsonObject | None = None
    labels: dict[str, str] | None = None
