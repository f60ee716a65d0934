"""Options that pass through to a model's service, and the words that the API has for them.

Source of names: the Gemini API. A class without fields takes and keeps whatever the API has.
"""

from __future__ import annotations

from enum import StrEnum

from greenroom.records.base import JsonObject, OpenRecord


class _ApiWords(StrEnum):
    """An enum whose values are its names. Fields that hold them are plain strings, since services add new values."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name


HarmCategory = _ApiWords(
    "HarmCategory",
    "HARM_CATEGORY_UNSPECIFIED HARM_CATEGORY_HARASSMENT HARM_CATEGORY_HATE_SPEECH HARM_CATEGORY_SEXUALLY_EXPLICIT "
    "HARM_CATEGORY_DANGEROUS_CONTENT HARM_CATEGORY_CIVIC_INTEGRITY HARM_CATEGORY_JAILBREAK HARM_CATEGORY_IMAGE_HATE "
    "HARM_CATEGORY_IMAGE_DANGEROUS_CONTENT HARM_CATEGORY_IMAGE_HARASSMENT HARM_CATEGORY_IMAGE_SEXUALLY_EXPLICIT",
)
HarmBlockMethod = _ApiWords("HarmBlockMethod", "HARM_BLOCK_METHOD_UNSPECIFIED SEVERITY PROBABILITY")
HarmBlockThreshold = _ApiWords(
    "HarmBlockThreshold",
    "HARM_BLOCK_THRESHOLD_UNSPECIFIED BLOCK_LOW_AND_ABOVE BLOCK_MEDIUM_AND_ABOVE BLOCK_ONLY_HIGH BLOCK_NONE OFF",
)
SafetyFilterLevel = _ApiWords(
    "SafetyFilterLevel", "BLOCK_LOW_AND_ABOVE BLOCK_MEDIUM_AND_ABOVE BLOCK_ONLY_HIGH BLOCK_NONE"
)
PersonGeneration = _ApiWords("PersonGeneration", "DONT_ALLOW ALLOW_ADULT ALLOW_ALL")
FunctionCallingConfigMode = _ApiWords("FunctionCallingConfigMode", "MODE_UNSPECIFIED AUTO ANY NONE VALIDATED")
FunctionResponseScheduling = _ApiWords(
    "FunctionResponseScheduling", "SCHEDULING_UNSPECIFIED SILENT WHEN_IDLE INTERRUPT"
)
Behavior = _ApiWords("Behavior", "UNSPECIFIED BLOCKING NON_BLOCKING")
Language = _ApiWords("Language", "LANGUAGE_UNSPECIFIED PYTHON")
Outcome = _ApiWords("Outcome", "OUTCOME_UNSPECIFIED OUTCOME_OK OUTCOME_FAILED OUTCOME_DEADLINE_EXCEEDED")
Modality = _ApiWords("Modality", "MODALITY_UNSPECIFIED TEXT IMAGE AUDIO VIDEO")
MediaModality = _ApiWords("MediaModality", "MODALITY_UNSPECIFIED TEXT IMAGE VIDEO AUDIO DOCUMENT")
MediaResolution = _ApiWords(
    "MediaResolution",
    "MEDIA_RESOLUTION_UNSPECIFIED MEDIA_RESOLUTION_LOW MEDIA_RESOLUTION_MEDIUM MEDIA_RESOLUTION_HIGH",
)
PartMediaResolutionLevel = _ApiWords(
    "PartMediaResolutionLevel",
    "MEDIA_RESOLUTION_UNSPECIFIED MEDIA_RESOLUTION_LOW MEDIA_RESOLUTION_MEDIUM MEDIA_RESOLUTION_HIGH "
    "MEDIA_RESOLUTION_ULTRA_HIGH",
)
ThinkingLevel = _ApiWords("ThinkingLevel", "THINKING_LEVEL_UNSPECIFIED MINIMAL LOW MEDIUM HIGH")
StartSensitivity = _ApiWords(
    "StartSensitivity", "START_SENSITIVITY_UNSPECIFIED START_SENSITIVITY_HIGH START_SENSITIVITY_LOW"
)
EndSensitivity = _ApiWords("EndSensitivity", "END_SENSITIVITY_UNSPECIFIED END_SENSITIVITY_HIGH END_SENSITIVITY_LOW")
ActivityHandling = _ApiWords(
    "ActivityHandling", "ACTIVITY_HANDLING_UNSPECIFIED START_OF_ACTIVITY_INTERRUPTS NO_INTERRUPTION"
)
TurnCoverage = _ApiWords(
    "TurnCoverage",
    "TURN_COVERAGE_UNSPECIFIED TURN_INCLUDES_ONLY_ACTIVITY TURN_INCLUDES_ALL_INPUT "
    "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO",
)
BlockedReason = _ApiWords(
    "BlockedReason",
    "BLOCKED_REASON_UNSPECIFIED SAFETY OTHER BLOCKLIST PROHIBITED_CONTENT IMAGE_SAFETY MODEL_ARMOR JAILBREAK",
)
TrafficType = _ApiWords(
    "TrafficType",
    "TRAFFIC_TYPE_UNSPECIFIED ON_DEMAND ON_DEMAND_PRIORITY ON_DEMAND_FLEX ON_DEMAND_OFFPEAK PROVISIONED_THROUGHPUT",
)
DynamicRetrievalConfigMode = _ApiWords("DynamicRetrievalConfigMode", "MODE_UNSPECIFIED MODE_DYNAMIC")
Environment = _ApiWords(
    "Environment", "ENVIRONMENT_UNSPECIFIED ENVIRONMENT_BROWSER ENVIRONMENT_MOBILE ENVIRONMENT_DESKTOP"
)
VoiceActivityType = _ApiWords("VoiceActivityType", "TYPE_UNSPECIFIED ACTIVITY_START ACTIVITY_END")


class HttpRetryOptions(OpenRecord):
    """Delays are in seconds."""

    attempts: int | None = None
    initial_delay: float | None = None
    max_delay: float | None = None
    exp_base: float | None = None
    jitter: float | None = None
    http_status_codes: list[int] | None = None


class HttpOptions(OpenRecord):
    """Options of HTTP requests to a model's provider."""

    base_url: str | None = None
    base_url_resource_scope: str | None = None
    api_version: str | None = None
    headers: dict[str, str] | None = None
    timeout: int | None = None
    """Milliseconds."""
    extra_body: JsonObject | None = None
    client_args: JsonObject | None = None
    async_client_args: JsonObject | None = None
    retry_options: HttpRetryOptions | None = None


class AutomaticFunctionCallingConfig(OpenRecord):
    disable: bool | None = None
    maximum_remote_calls: int | None = None
    ignore_call_history: bool | None = None


class PrebuiltVoiceConfig(OpenRecord):
    voice_name: str | None = None


class VoiceConfig(OpenRecord):
    prebuilt_voice_config: PrebuiltVoiceConfig | None = None
    replicated_voice_config: JsonObject | None = None
    voice: str | None = None


class SpeakerVoiceConfig(OpenRecord):
    speaker: str | None = None
    voice_config: VoiceConfig | None = None


class MultiSpeakerVoiceConfig(OpenRecord):
    speaker_voice_configs: list[SpeakerVoiceConfig] | None = None


class SpeechConfig(OpenRecord):
    voice_config: VoiceConfig | None = None
    multi_speaker_voice_config: MultiSpeakerVoiceConfig | None = None
    language_code: str | None = None


class AutomaticActivityDetection(OpenRecord):
    disabled: bool | None = None
    start_of_speech_sensitivity: str | None = None
    end_of_speech_sensitivity: str | None = None
    prefix_padding_ms: int | None = None
    silence_duration_ms: int | None = None


class RealtimeInputConfig(OpenRecord):
    automatic_activity_detection: AutomaticActivityDetection | None = None
    activity_handling: str | None = None
    turn_coverage: str | None = None
    interim_transcript_timestamp_enabled: bool | None = None


class SlidingWindow(OpenRecord):
    target_tokens: int | None = None


class ContextWindowCompressionConfig(OpenRecord):
    trigger_tokens: int | None = None
    sliding_window: SlidingWindow | None = None


class SessionResumptionConfig(OpenRecord):
    handle: str | None = None
    transparent: bool | None = None


class ProactivityConfig(OpenRecord):
    proactive_audio: bool | None = None


# fmt: off
class ApiKeyConfig(OpenRecord): ...
class AudioTranscriptionConfig(OpenRecord): ...
class AvatarConfig(OpenRecord): ...
class ComputerUse(OpenRecord): ...
class DynamicRetrievalConfig(OpenRecord): ...
class EnterpriseWebSearch(OpenRecord): ...
class FileSearch(OpenRecord): ...
class GenerateImagesConfig(OpenRecord): ...
class GenerationConfigRoutingConfig(OpenRecord): ...
class GoogleMaps(OpenRecord): ...
class GoogleSearch(OpenRecord): ...
class GoogleSearchRetrieval(OpenRecord): ...
class HistoryConfig(OpenRecord): ...
class ImageConfig(OpenRecord): ...
class LatLng(OpenRecord): ...
class ModelArmorConfig(OpenRecord): ...
class ModelSelectionConfig(OpenRecord): ...
class RagRetrievalConfig(OpenRecord): ...
class RagRetrievalConfigFilter(OpenRecord): ...
class ReplicatedVoiceConfig(OpenRecord): ...
class Retrieval(OpenRecord): ...
class RetrievalConfig(OpenRecord): ...
class ToolCodeExecution(OpenRecord): ...
class TranslationConfig(OpenRecord): ...
class UrlContext(OpenRecord): ...
class VertexAISearch(OpenRecord): ...
class VertexAISearchDataStoreSpec(OpenRecord): ...
class VertexRagStore(OpenRecord): ...
class VertexRagStoreRagResource(OpenRecord): ...
