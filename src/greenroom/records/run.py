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
from greenroom.records.session import GetSessionConfig, SessionKey
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.records.wake_up import SentSignal, WakeUp

MultitaskStrategy = Literal["enqueue", "reject", "interrupt", "steer"]
"""Policy of a request while another run is active in its session: wait in the queue, fail with 409, cancel it, or pass
it the message, which it reads before its next model call."""

OnDisconnect = Literal["continue", "cancel"]

OnToolsetError = Literal["fail", "warn"]
"""Policy of a run when the tools of a toolset can't be loaded: fail, or log a warning and continue without them."""

INVOCATION_ID = r"^[\x21-\x7e]{1,256}$"
WEBHOOK_ID = r"^[A-Za-z0-9_-]{0,64}$"
MAX_DEADLINE_SECONDS = 1e9
MAX_DELAY_SECONDS = 1e9
MAX_START_AT = 253_402_300_800.0
"""The year 10000, in Unix seconds."""
MAX_PRIORITY = 10
MAX_WEBHOOKS = 10
"""Of one run."""

_DEADLINE = {"exclusiveMinimum": 0, "exclusiveMaximum": MAX_DEADLINE_SECONDS}
_DELAY = {"minimum": 0, "exclusiveMaximum": MAX_DELAY_SECONDS}
_START_AT = {"minimum": 0, "exclusiveMaximum": MAX_START_AT}


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
    """The threads that run synchronous tools."""

    max_workers: Annotated[int, Meta(ge=1)] = 4
    """Number of synchronous tools that run at a time, over all runs with the same number."""

    def __post_init__(self) -> None:
        if self.max_workers < 1:
            raise ValueError("max_workers must be 1 or more")


class RunConfig(Record, kw_only=True):
    """Options of one run. The fields from `support_cfc` on are ADK's, without effect here."""

    streaming_mode: StreamingMode = StreamingMode.NONE
    max_llm_calls: Annotated[int, Meta(lt=sys.maxsize)] = msgspec.field(default_factory=default_max_llm_calls)
    """Zero or less means no limit; by default `ADK_MAX_LLM_CALLS`, else 500."""
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
    """Tools run side by side unless it is SEQUENTIAL."""
    tool_thread_pool_config: ToolThreadPoolConfig | None = None
    """Without one, up to 256 synchronous tools of the process run at a time."""
    custom_metadata: JsonObject | None = None
    auto_create_session: bool = False
    get_session_config: GetSessionConfig | None = None
    labels: dict[str, str] | None = None
    """Overrides the labels of each agent."""
    http_options: JsonObject | None = None
    """Overrides the HTTP options of each agent."""
    service_tier: str | None = None
    include_thoughts_from_other_agents: bool = False
    on_toolset_error: OnToolsetError = "fail"
    """The policy for toolsets that don't choose one themselves."""
    client_tools: list[FunctionDeclaration] = msgspec.field(default_factory=list[FunctionDeclaration])
    """Functions that the client executes: agents may call them, and the client sends the responses."""
    model_input_context: list[Content] | None = None
    """Shown to models before the message that began the run, and never stored."""
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


def _streaming_mode(value: object) -> StreamingMode:
    """Reads a mode from a text as ADK spells it (`"sse"`), or None."""
    try:
        return StreamingMode("NONE" if value is None else str(value).upper())
    except ValueError:
        raise ValueError(f"streaming_mode is one of {', '.join(StreamingMode)}, not {value!r}") from None


class SessionRunRequest(Record, kw_only=True):
    """A request to run in a session."""

    new_message: Content | None = None
    """The user's message or function responses; None runs on the stored history."""
    streaming: bool = False
    """Whether partial events are sent."""
    state_delta: JsonObject | None = None
    """Changes of the session's state, stored with the message."""
    function_call_event_id: str | None = None
    """Sent by ADK's UI, without effect."""
    invocation_id: Annotated[str, Meta(extra_json_schema={"pattern": INVOCATION_ID})] | None = None
    """The run to continue."""
    custom_metadata: JsonObject | None = None
    """Stored with the user's event."""
    service_tier: str | None = None
    """The service tier requested from the model's provider."""
    max_llm_calls: Annotated[int, Meta(ge=1)] | None = None
    """Lowers the limit of the app or the server."""
    multitask_strategy: MultitaskStrategy = "enqueue"
    """Policy for a session that already has an active run."""
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    """Runs of a higher priority start first where the server limits the runs that it executes at a time; by default
    that of the app."""
    on_disconnect: OnDisconnect | None = None
    """Whether the run continues or is cancelled when the client disconnects."""
    deadline_seconds: Annotated[float, Meta(extra_json_schema=_DEADLINE)] | None = None
    """The run is failed after this time, which counts from its start."""
    start_at: Annotated[float, Meta(extra_json_schema=_START_AT)] | None = None
    """Unix seconds at which the run starts; at once if they have passed."""
    delay_seconds: Annotated[float, Meta(extra_json_schema=_DELAY)] | None = None
    """Seconds after which the run starts, in place of `startAt`."""
    client_tools: list[FunctionDeclaration] | None = None
    """Functions that the client executes; a call stays open until a message brings its function
    response."""
    webhooks: Annotated[list[Webhook], Meta(max_length=MAX_WEBHOOKS)] | None = None
    """Receivers of the run's states, besides those of the app."""


class AgentRunRequest(SessionRunRequest, kw_only=True):
    """Body of `/run` and `/run_sse`."""

    app_name: Annotated[str, Meta(description="May be left out where the server has a default app.")] = ""
    """Empty if the server is to take its default app."""
    user_id: str
    """The owner of the session."""
    session_id: str
    """The session to run in."""


class Caller(Record, kw_only=True):
    """The authenticated caller of a request."""

    user_id: str
    """The subject of the key or token, which may differ from the session's user."""
    key_id: str | None = None
    """The API key; None for a token of an identity provider."""
    scopes: list[str] = msgspec.field(default_factory=list[str])
    """The scopes granted to the caller."""


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True if nothing more happens unless a client sends a new message."""
        return self not in (RunStatus.QUEUED, RunStatus.RUNNING)


RETRYABLE = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})
"""The statuses of runs that can be retried."""


class RunError(Record, kw_only=True):
    """The error that a run failed with."""

    code: str
    """The class name of the error, or the code that a model reported."""
    message: str
    """The error's text."""
    status: int | None = None
    """The HTTP status of the error; None for an error that a model reported."""


class Webhook(Record, kw_only=True):
    """A URL that receives the states of a run, or of all runs of an app, in signed HTTP requests."""

    url: str
    """`https://` or `http://`, without a user name and password."""
    states: list[RunStatus] = msgspec.field(
        default_factory=lambda: [RunStatus.WAITING, RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED]
    )
    """The states that are sent; by default all but `queued` and `running`."""
    id: Annotated[str, Meta(extra_json_schema={"pattern": WEBHOOK_ID})] = ""
    """Unique in its run or app; by default the server chooses one."""


class RunWebhook(Webhook, kw_only=True):
    """A webhook of a run."""

    is_of_app: bool = False
    """Whether the run has it from its app."""
    status: RunStatus | None = None
    """The status of the run that was noted last, whether it is one of `states` or not."""
    changes: int = 0
    """Number of changes of the status since the run has this webhook."""


class QueuedRequest(Record, kw_only=True):
    """A request that continues a run, and waits in the queue before the request in the run's record."""

    request: AgentRunRequest
    """The request's body, as it was admitted."""
    caller: Caller | None = None
    """Its authenticated caller; None without authentication."""
    message_after_seq: int = 0
    """The session's last sequence number when it was admitted."""


class Run(Record, kw_only=True):
    """The record of a run. Times are Unix seconds."""

    id: str
    """The run's id, which is also the invocation id of its events."""
    app_name: str
    """The app that runs."""
    user_id: str
    """The owner of the session."""
    session_id: str
    """The session that the run writes to."""
    status: RunStatus
    """The state of the run."""
    created_at: float
    """Unix seconds of the request."""
    start_at: float | None = None
    """Unix seconds at which the run starts; None if it starts at once, and when the time has come."""
    requested_at: float | None = None
    """Unix seconds of the newest message that continued it, of its retry, or at which its time had come; None:
    `created_at`."""
    started_at: float | None = None
    """Unix seconds of the first start; None while the run is queued."""
    ended_at: float | None = None
    """Unix seconds; None until the run has ended."""
    first_text_at: float | None = None
    """Unix seconds of the first text of a model since the run was requested; None without statistics."""
    attempts: int = msgspec.field(default_factory=int)
    """Number of times that a process started or resumed the run."""
    stalled: int = 0
    """Number of the last attempts that made no progress."""
    stalled_alone: int = 0
    """Number of those in which the run was the only resumed one without progress when the process
    died."""
    resumed_alone: bool = False
    """Whether the last attempt was the only resumed run without progress."""
    progress: int = 0
    """Number of events that the run had stored at the last attempt; -1 after a clean stop, which
    does not count as an attempt without progress."""
    error: RunError | None = None
    """The error that the run failed with."""
    usage: GenerateContentResponseUsageMetadata | None = None
    """Token counts of the run's model calls."""
    after_seq: int = msgspec.field(default_factory=int)
    """The session's last sequence number before the run's first event."""
    message_after_seq: int = msgspec.field(default_factory=int)
    """The session's last sequence number before the message of `request`, which may be a later
    message than the run's first."""
    request: AgentRunRequest | None = None
    """The request's body, to start the run again; None for a live run, which can't be started again. Its message and
    its changes of the state are removed when the run has ended, if the log has them."""
    idempotency_key: str | None = None
    """The idempotency key that the caller sent."""
    request_digest: str | None = None
    """Digest of the body that came with the idempotency key."""
    traceparent: str | None = None
    """W3C context of the trace that the request belongs to."""
    caller: Caller | None = None
    """The caller who started the run; None without authentication."""
    is_live: bool = False
    """Whether it is a live (voice or video) run."""
    app_version: str | None = None
    """Version of the app's code in the last attempt."""
    priority: int = 0
    """Runs of a higher priority start first."""
    retries: int = 0
    """Number of times that it was retried by request, after it had failed or was cancelled."""
    retry_of: str | None = None
    """The run of another session that this one continues after a fork."""
    wake_ups: dict[str, WakeUp] = {}  # noqa: RUF012 - as below
    """Times and signals that continue the run while it waits, by id of the call that waits for them."""
    asked: dict[str, str] = {}  # noqa: RUF012 - msgspec makes a new one each time
    """The digests of its pending approval and credential requests, by request id."""
    requests: dict[str, str] = {}  # noqa: RUF012 - msgspec makes a new one each time
    """Ids of the open requests to people while the run waits, by id of the call that waits for the answer."""
    webhooks: list[RunWebhook] = []  # noqa: RUF012 - msgspec makes a new one each time
    """Receivers of the run's states."""
    signals: list[SentSignal] = []  # noqa: RUF012 - msgspec makes a new one each time
    """Signals that were sent before the run waits for them, oldest first."""
    signal_ids: dict[str, float] = {}  # noqa: RUF012 - msgspec makes a new one each time
    """The ids of signals that it received, and the Unix seconds until which it refuses them a second time."""
    steered_into: str | None = None
    """The active run that is to read the message of this request, or has read it: then this run has done nothing
    itself. None for a run of its own."""
    read_at_seq: int | None = None
    """The sequence number of the message in the log, where the other run has read it."""
    counted: int = 0
    """Number of times that figures of it were added to the statistics."""
    counted_seq: int = 0
    """The sequence number up to which its events are in the statistics."""
    queued_before: list[QueuedRequest] = []  # noqa: RUF012 - msgspec makes a new one each time
    """Requests that continue the run before `request`, oldest first: those whose messages were not in the log when
    `request` was admitted. Empty when the run begins."""

    def may_read(self, other: Run) -> bool:
        """Whether this run, while it is active, may read the message of another one: it acts for its own caller, and
        must not be told what to do by somebody with other rights.
        """
        if self.caller is None or other.caller is None:
            return self.caller is other.caller
        own = self.caller
        return (own.user_id, set(own.scopes)) == (other.caller.user_id, set(other.caller.scopes))

    @property
    def waits_to_be_read(self) -> bool:
        """Whether another run may read the message."""
        return self.steered_into is not None and self.read_at_seq is None

    def note_reading(self, run_id: str, seq: int) -> None:
        """Notes that another run has read the message, as the event with that sequence number."""
        self.steered_into = run_id
        self.read_at_seq = seq
        self.after_seq = seq - 1
        self.message_after_seq = seq - 1

    @property
    def session_key(self) -> SessionKey:
        return SessionKey(self.app_name, self.user_id, self.session_id)

    @property
    def is_delayed(self) -> bool:
        """True while the run waits for its time, outside of its session's queue."""
        return self.start_at is not None and self.status is RunStatus.QUEUED


_INTERNAL_FIELDS = frozenset(
    {
        "request", "request_digest", "asked", "traceparent", "caller", "webhooks", "signal_ids", "queued_before",
        "counted", "counted_seq",
    }
)  # fmt: skip


def public_record(run: Run) -> Run:
    """The run's record without internal fields."""
    return Run(**{field: getattr(run, field) for field in Run.__struct_fields__ if field not in _INTERNAL_FIELDS})


class PushConfig(Record, kw_only=True):
    """A receiver of push notifications about a run's states."""

    run_id: str
    id: str
    """Unique within its run."""
    config: JsonObject
    """The destination and its options, in the form of the gate that made it."""
    reported: str = ""
    """The state that was reported last."""
    is_over: bool = False
    """Whether nothing more is reported."""


class RunFilter(Record, kw_only=True):
    """A filter for lists of runs; missing fields filter nothing. created_from is included, created_before is not."""

    app_names: list[str] | None = None
    user_id: str | None = None
    session_id: str | None = None
    statuses: list[RunStatus] | None = None
    error_code: str | None = None
    """Of a failed or cancelled run."""
    app_version: str | None = None
    """The version of the app's code, see `Run.app_version`."""
    created_from: float | None = None
    created_before: float | None = None
    feedback: str | None = None
    """Only runs with feedback of this name, of one app. Lists filter by it, watches of runs don't."""
    feedback_label: str | None = None
    min_score: float | None = None
    max_score: float | None = None
    """Of that feedback."""


class ListRunsResponse(Record, kw_only=True, omit_defaults=False):
    """A page of a list of runs."""

    runs: list[Run] = msgspec.field(default_factory=list[Run])
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""


class RetryRunsRequest(Record, kw_only=True):
    """A filter for the runs to retry; missing fields filter nothing."""

    app_name: str | None = None
    """Only runs of this app."""
    user_id: str | None = None
    """Only runs of this user."""
    session_id: str | None = None
    """Only runs of this session."""
    status: list[Literal["failed", "cancelled"]] = msgspec.field(default_factory=lambda: ["failed"])
    """Only runs with one of these statuses."""
    error_code: str | None = None
    """Only runs that failed with this error."""
    created_from: float | None = None
    """Only runs created at or after these Unix seconds."""
    created_before: float | None = None
    """Only runs created before these Unix seconds."""
    fork: bool = False
    """Whether new runs continue in forks of the sessions."""
    limit: Annotated[int, Meta(ge=1, le=100)] = 100
    """Maximum number of runs that are looked at."""
    page_token: str | None = None
    """The `nextPageToken` of the previous page."""


class RefusedRetry(Record, kw_only=True):
    """A run that could not be retried."""

    run_id: str
    """The run."""
    code: str
    """The class name of the error."""
    detail: str
    """The error's text."""


class RetryRunsResponse(Record, kw_only=True, omit_defaults=False):
    """The result of retrying a page of runs."""

    started: list[Run] = msgspec.field(default_factory=list[Run])
    """Newest first."""
    refused: list[RefusedRetry] = msgspec.field(default_factory=list[RefusedRetry])
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""
