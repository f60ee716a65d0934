"""Runs: the request, the configuration, and the record of a run with its outcome."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from greenroom.errors import ConfigurationError
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import Content
from greenroom.records.session import GetSessionConfig
from greenroom.records.tool_declaration import FunctionDeclaration

MultitaskStrategy = Literal["enqueue", "reject", "interrupt"]
"""Policy of a request while another run is active in its session: wait in the queue, fail with 409, or cancel it."""

OnDisconnect = Literal["continue", "cancel"]

OnToolsetError = Literal["fail", "warn"]
"""Policy of a run when the tools of a toolset can't be loaded: fail, or log a warning and continue without them."""

INVOCATION_ID = r"^[\x21-\x7e]{1,256}$"
MAX_DEADLINE_SECONDS = 1e9

_DEADLINE = {"exclusiveMinimum": 0, "exclusiveMaximum": MAX_DEADLINE_SECONDS}


_MAX_LLM_CALLS_VARIABLE = "ADK_MAX_LLM_CALLS"
_MAX_LLM_CALLS = 500


def default_max_llm_calls() -> int:
    """The limit of runs that set none: the variable `ADK_MAX_LLM_CALLS`, else 500. Raises ConfigurationError."""
    text = os.environ.get(_MAX_LLM_CALLS_VARIABLE)
    if not text:
        return _MAX_LLM_CALLS
    try:
        return max(int(text), 0)
    except ValueError:
        message = f"variable {_MAX_LLM_CALLS_VARIABLE} must be a whole number, not {text!r}"
        raise ConfigurationError([message]) from None


class StreamingMode(StrEnum):
    NONE = "NONE"
    SSE = "SSE"
    BIDI = "BIDI"


class ToolThreadPoolConfig(Record, kw_only=True):
    """max_workers: how many synchronous tools run at a time, over all runs with the same number."""

    max_workers: Annotated[int, Meta(ge=1)] = 4

    def __post_init__(self) -> None:
        if self.max_workers < 1:
            raise ValueError("max_workers must be 1 or more")


class RunConfig(Record, kw_only=True):
    """Options of one run.

    max_llm_calls: zero or less means no limit; `ADK_MAX_LLM_CALLS`, else 500, if it is left out.
    tool_execution_mode: tools run side by side unless it is SEQUENTIAL.
    tool_thread_pool_config: without one, up to 256 synchronous tools of the process run at a time. labels,
    http_options: override those of each agent. on_toolset_error: for toolsets that don't choose themselves.
    client_tools: functions that the client executes: agents may call them, and the client sends the responses.
    model_input_context: shown to models in front of the message that began the run, and never stored.
    support_cfc and what follows: ADK's, without effect here.
    """

    streaming_mode: StreamingMode = StreamingMode.NONE
    max_llm_calls: Annotated[int, Meta(lt=sys.maxsize)] = msgspec.field(default_factory=default_max_llm_calls)
    response_modalities: list[str] | None = None
    speech_config: JsonValue = None
    input_audio_transcription: JsonObject | None = msgspec.field(default_factory=dict[str, Any])
    output_audio_transcription: JsonObject | None = msgspec.field(default_factory=dict[str, Any])
    realtime_input_config: JsonObject | None = None
    enable_affective_dialog: bool | None = None
    explicit_vad_signal: bool | None = None
    proactivity: JsonObject | None = None
    session_resumption: JsonObject | None = None
    context_window_compression: JsonObject | None = None
    save_input_blobs_as_artifacts: bool = False
    save_live_blob: bool = False
    tool_execution_mode: Literal["NONE", "PARALLEL", "PARALLEL_SUBSCRIBE", "SEQUENTIAL"] = "NONE"
    tool_thread_pool_config: ToolThreadPoolConfig | None = None
    custom_metadata: JsonObject | None = None
    auto_create_session: bool = False
    get_session_config: GetSessionConfig | None = None
    labels: dict[str, str] | None = None
    http_options: JsonObject | None = None
    service_tier: str | None = None
    include_thoughts_from_other_agents: bool = False
    on_toolset_error: OnToolsetError = "fail"
    client_tools: list[FunctionDeclaration] = msgspec.field(default_factory=list[FunctionDeclaration])
    model_input_context: list[Content] | None = None
    support_cfc: bool = False
    save_live_audio: bool = False
    history_config: JsonObject | None = None
    avatar_config: JsonObject | None = None
    translation_config: JsonObject | None = None
    telemetry: JsonObject | None = None

    def __post_init__(self) -> None:
        if self.max_llm_calls == sys.maxsize:
            raise ValueError("max_llm_calls is too large; zero means no limit")
        if not isinstance(self.streaming_mode, StreamingMode):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.streaming_mode = _streaming_mode(self.streaming_mode)

    def over(self, base: RunConfig | None) -> RunConfig:
        """This configuration with the values of `base` wherever this one has the default."""
        if base is None:
            return self
        default = RunConfig()
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(
            base, **{name: value for name, value in given.items() if value != getattr(default, name)}
        )


def _streaming_mode(given: object) -> StreamingMode:
    """From a text as ADK spells it (`"sse"`), or None."""
    try:
        return StreamingMode("NONE" if given is None else str(given).upper())
    except ValueError:
        raise ValueError(f"streaming_mode is one of {', '.join(StreamingMode)}, not {given!r}") from None


class SessionRunRequest(Record, kw_only=True):
    """A request to run in a session.

    invocation_id: the run to continue. max_llm_calls: lowers the limit of the app or the server. deadline_seconds: the
    run is failed after this time. client_tools: functions that the client executes; a call stays open until a message
    brings its function response. new_message: the user's message or function responses; None runs on the stored
    history. streaming: whether partial events are sent. state_delta: changes of the session's state, stored with the
    message. custom_metadata: stored with the user's event. service_tier: the service tier requested from the model's
    provider. multitask_strategy: what happens when the session already has an active run. on_disconnect: whether the
    run continues or is cancelled when the client disconnects. function_call_event_id: sent by ADK's UI, without effect.
    """

    new_message: Content | None = None
    streaming: bool = False
    state_delta: JsonObject | None = None
    function_call_event_id: str | None = None
    invocation_id: Annotated[str, Meta(extra_json_schema={"pattern": INVOCATION_ID})] | None = None
    custom_metadata: JsonObject | None = None
    service_tier: str | None = None
    max_llm_calls: Annotated[int, Meta(ge=1)] | None = None
    multitask_strategy: MultitaskStrategy = "enqueue"
    on_disconnect: OnDisconnect | None = None
    deadline_seconds: Annotated[float, Meta(extra_json_schema=_DEADLINE)] | None = None
    client_tools: list[FunctionDeclaration] | None = None


class AgentRunRequest(SessionRunRequest, kw_only=True):
    """Body of `/run` and `/run_sse`. app_name: empty where the server is to take its default app.

    user_id: the owner of the session. session_id: the session to run in.
    """

    app_name: Annotated[str, Meta(description="May be left out where the server has a default app.")] = ""
    user_id: str
    session_id: str


class Caller(Record, kw_only=True):
    """The authenticated caller of a request. user_id: the subject of its key or token, which may differ from the
    session's user; key_id: None for a token of an identity provider.

    scopes: the scopes granted to the caller.
    """

    user_id: str
    key_id: str | None = None
    scopes: list[str] = msgspec.field(default_factory=list[str])


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Nothing more will happen unless a client sends a new message."""
        return self not in (RunStatus.QUEUED, RunStatus.RUNNING)


class RunError(Record, kw_only=True):
    """code: the class name of what was raised, and its HTTP status; or what a model reported, without a status.

    message: the error's text. status: the HTTP status of the error; None for an error that a model reported.
    """

    code: str
    message: str
    status: int | None = None


class Run(Record, kw_only=True):
    """The record of a run. `id` is also the invocation id of its events. Times are Unix seconds.

    after_seq: the session's last sequence number before the run's first event; message_after_seq: the last one before
    the message of `request`, which may be a later one. attempts: how often a process started or resumed the run;
    stalled: how many of the last attempts made no progress; stalled_alone: how many of those were the only resumed run
    without progress when the process died; resumed_alone: whether the last attempt was; progress: the number of its
    stored events at the last attempt, -1 after a clean stop, which does not count as an attempt without progress.
    request: the body, for starting the run again; None of a live run, which can't be. idempotency_key: as the
    caller sent it; request_digest: digest of the body with that key. asked: the digests of its pending approval and
    credential requests, by request id. traceparent: W3C context of the trace that the request belongs to. caller: who
    started the run; None without authentication. app_version: version of the app's code in the last attempt. id: also
    the invocation id of its events. app_name: the app that runs. user_id: the owner of the session. session_id: the
    session that the run writes to. status: the state of the run. created_at: Unix seconds. started_at: Unix seconds of
    the first start; None while the run is queued. ended_at: Unix seconds; None until the run has ended. error: why the
    run failed. usage: token counts of the run's model calls. is_live: whether it is a live (voice or video) run.
    """

    id: str
    app_name: str
    user_id: str
    session_id: str
    status: RunStatus
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    attempts: int = msgspec.field(default_factory=int)
    stalled: int = 0
    stalled_alone: int = 0
    resumed_alone: bool = False
    progress: int = 0
    error: RunError | None = None
    usage: GenerateContentResponseUsageMetadata | None = None
    after_seq: int = msgspec.field(default_factory=int)
    message_after_seq: int = msgspec.field(default_factory=int)
    request: AgentRunRequest | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    traceparent: str | None = None
    caller: Caller | None = None
    is_live: bool = False
    app_version: str | None = None
    asked: dict[str, str] = {}  # noqa: RUF012 - msgspec makes a new one each time


class Webhook(Record, kw_only=True):
    """A receiver of a run's states. id: unique in its run. config: where and how to send, by the gate that made it.

    reported: the state that was reported last. is_over: nothing more is reported.
    """

    run_id: str
    id: str
    config: JsonObject
    reported: str = ""
    is_over: bool = False


class RunFilter(Record, kw_only=True):
    """Filter of a list of runs; what is left out filters nothing. created_from is included, created_before is not."""

    app_names: list[str] | None = None
    user_id: str | None = None
    session_id: str | None = None
    statuses: list[RunStatus] | None = None
    created_from: float | None = None
    created_before: float | None = None


class ListRunsResponse(Record, kw_only=True, omit_defaults=False):
    """Runs, newest first.

    runs: newest first. next_page_token: `page_token` of the next request; None on the last page.
    """

    runs: list[Run] = msgspec.field(default_factory=list[Run])
    next_page_token: str | None = None
