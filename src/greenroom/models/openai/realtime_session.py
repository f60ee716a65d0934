"""The session of a Realtime connection: its settings, and audio at the rate that it takes; no SDK,
no network.

Source: https://platform.openai.com/docs/api-reference/realtime
"""

from __future__ import annotations

from array import array
from typing import Any

from greenroom.models.conversion import built_in_tools, check_settings, functions, refused, tool_choice, warn_once
from greenroom.models.openai.messages import TOOL_CHOICES, reasoning_effort
from greenroom.records.base import JsonObject
from greenroom.records.generation import LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest

RATE = 24_000
PCM: JsonObject = {"type": "audio/pcm", "rate": RATE}
TRANSCRIBER = "gpt-4o-mini-transcribe"
"""Transcribes the user's speech, which Realtime models don't do themselves."""

_TAKEN = frozenset({
    "system_instruction", "max_output_tokens", "tools", "tool_config", "thinking_config", "speech_config",
    "http_options", "response_modalities", "effort",
})  # fmt: skip
_TAKEN_LIVE = frozenset({
    "response_modalities", "speech_config", "system_instruction", "tools", "input_audio_transcription",
    "output_audio_transcription", "realtime_input_config", "max_output_tokens", "http_options", "explicit_vad_signal",
    "session_resumption", "history_config",
})  # fmt: skip
"""Sessions are resumed, here, by sending the history to another connection."""


def session_settings(request: LlmRequest, *, model: str) -> JsonObject:
    """Returns the `session` of `session.update`. Raises MessageConversionError for settings that the service doesn't
    have.
    """
    for name, _ in built_in_tools(request):
        raise refused(f"{model} has no built-in tool {name!r} while it is live", model=model)

    live = _in_snake_case((request.live_connect_config or LiveConnectConfig()).model_dump(exclude_none=True))
    check_settings(request.config, taken=_TAKEN, model=model)

    for name in live.keys() - _TAKEN_LIVE:
        if live[name] not in (None, [], {}):
            warn_once(model, name)

    modalities = [str(modality).lower() for modality in live.get("response_modalities") or ["audio"]]
    for modality in set(modalities) - {"text", "audio"}:
        raise refused(f"{model} does not answer with {modality}", model=model)

    config = request.config
    speech = live.get("speech_config") or _in_snake_case(config.model_dump(include={"speech_config"}))["speech_config"]

    heard_by: JsonObject = {"format": PCM, "turn_detection": _turn_detection(live.get("realtime_input_config") or {})}
    transcription = live.get("input_audio_transcription")
    if transcription is not None:
        languages = transcription.get("language_codes") or [None]
        if languages[0]:
            language = str(languages[0]).partition("-")[0]
        else:
            language = None
        heard_by["transcription"] = _without_none({"model": TRANSCRIBER, "language": language})

    declarations, mode = tool_choice(request)
    effort = reasoning_effort(config)

    return _without_none({
        "type": "realtime",
        "instructions": config.system_text() or None,
        "output_modalities": ["audio" if "audio" in modalities else "text"],
        "audio": {"input": heard_by, "output": _without_none({"format": PCM, "voice": _voice(speech)})},
        "tools": [{"type": "function", **one} for one in functions(declarations)] or None,
        "tool_choice": TOOL_CHOICES[mode] if declarations else None,
        "max_output_tokens": live.get("max_output_tokens") or config.max_output_tokens,
        "reasoning": {"effort": effort} if effort else None,
    })  # fmt: skip


def _turn_detection(config: JsonObject) -> JsonObject | None:
    """None: the client signals when its user speaks."""
    detection: JsonObject = config.get("automatic_activity_detection") or {}
    if detection.get("disabled"):
        return None

    return _without_none({
        "type": "server_vad",
        "prefix_padding_ms": detection.get("prefix_padding_ms"),
        "silence_duration_ms": detection.get("silence_duration_ms"),
        "interrupt_response": False if config.get("activity_handling") == "NO_INTERRUPTION" else None,
    })  # fmt: skip


def _in_snake_case(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_in_snake_case(one) for one in raw]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(raw, dict):
        return raw
    return {_snake(name): _in_snake_case(value) for name, value in raw.items()}  # pyright: ignore


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _voice(speech: str | JsonObject | None) -> str | None:
    if not isinstance(speech, dict):
        return speech
    voice: JsonObject = speech.get("voice_config") or {}
    prebuilt: JsonObject = voice.get("prebuilt_voice_config") or {}
    return prebuilt.get("voice_name")


def _without_none(settings: JsonObject) -> JsonObject:
    return {name: value for name, value in settings.items() if value is not None}


class Resampler:
    """Turns 16-bit mono PCM of another rate into that of the service, by linear interpolation,
    piece by piece.
    """

    def __init__(self) -> None:
        self._last = 0
        self._at = 1.0
        self._rest = b""

    def convert(self, data: bytes, rate: int) -> bytes:
        if rate == RATE:
            return data

        data = self._rest + data
        self._rest = data[len(data) & ~1 :]
        samples = array("h", data[: len(data) & ~1])
        samples.insert(0, self._last)
        at = self._at

        step = rate / RATE
        end = len(samples) - 1
        out = array("h")
        while at <= end:
            index = int(at)
            left = samples[index]
            out.append(left + int((samples[min(index + 1, end)] - left) * (at - index)))
            at += step

        self._last = samples[end]
        self._at = at - end

        return out.tobytes()


def rate_of(mime_type: str) -> int:
    """The rate of `audio/pcm;rate=…`; 16,000 without one, as Gemini takes it."""
    for parameter in mime_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip() == "rate" and value.strip().isdigit():
            return int(value)
    return 16_000
