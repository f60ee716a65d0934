"""Every error greenroom raises: one tree, with the HTTP status that each becomes.
In brackets: the built-in errors that some are too, because ADK raises them in the same case.

GreenroomError
├── CallerError                    400   the caller can correct it
│   ├── InvalidRequest             422   an invalid body, parameter or record [ValueError]
│   ├── AppNotNamed                      no app is named, and none is the default
│   ├── NotFound                   404
│   │   ├── AppNotFound
│   │   ├── SessionNotFound              also a SessionError [ValueError]
│   │   ├── RunNotFound                  [ValueError]
│   │   ├── RequestNotFound              a request to people
│   │   ├── ArtifactNotFound
│   │   ├── ScheduleNotFound
│   │   ├── TraceNotFound
│   │   └── AgentNotFound
│   ├── Unauthenticated            401   the caller is unknown; the detail never holds credentials
│   ├── Forbidden                  403   the caller lacks the permission
│   │   └── NotApprover                  a request to people waits for others
│   ├── LinkExpired                410   a signed link that is out of date
│   ├── TooLarge                   413
│   ├── TooManyRequests            429   `retry_after_seconds` says when to try again
│   │   └── TooManyRuns                  of a user, of an app or of the server, at once
│   ├── UnsupportedEncoding        415   a compressed body
│   ├── UnsupportedMediaType       415   a body of another type, where a protocol asks for this status
│   ├── AgentConfigError           400   an invalid agent, tool or app [ValueError]
│   │   ├── MissingVariable              an instruction's {variable} without a value [KeyError]
│   │   ├── ToolDeclarationError         also a ToolError
│   │   └── ReplayConfigError            a recording that can't be made or read
│   ├── ConfigurationError         400   invalid flags, variables or lines of greenroom.toml
│   ├── NotOffered                 501   this server does not support it
│   └── MissingExtra               501   a package of an extra is not installed [ImportError]
├── Conflict                       409
│   ├── SessionExists
│   ├── NotWaiting                       a run does not wait for that signal or response
│   ├── NotRetryable                     a run did not fail, or its session went on
│   ├── SignalRepeated                   a run has received this signal before
│   ├── SignalsFull                      a run holds as many signals as it may
│   ├── RequestClosed                    a request to people that was answered before, or whose run has ended
│   ├── SessionBusy                      another run is active and the caller chose "reject"
│   ├── SessionFull                      it has reached the limit of events
│   ├── ScheduleConflict                 its id is taken, or its app declares it, so it can't be changed
│   ├── TooManySchedules                 of a user or of an app
│   ├── TooMuchFeedback                  on one event
│   ├── WebhookConflict                  the code of its app has it, so it can't be changed
│   ├── AccessConflict                   a key, service account or role is in use, built in or the last of its kind
│   ├── TooManyVersions                  published ones of an app
│   ├── VersionInUse                     a published version that serves sessions can't be deleted
│   ├── ApprovalRefused                  a forged, used or outdated approval
│   ├── AppVersionChanged                a run would continue with other code, and its app refuses that
│   └── IdempotencyConflict        422   one key, two different requests
├── RunFailed                      500   the run itself failed
│   ├── RunGivenUp                       it was cut off again and again, and may be what ends the server
│   ├── AppLoadError                     the app's own code failed on import
│   ├── ModelError
│   │   ├── ModelNotFound                no factory knows the model's name [ValueError]
│   │   ├── MissingProject               a cloud model's project or location is not configured [ValueError]
│   │   └── MessageConversionError       a message or a reply that can't be converted [ValueError]
│   ├── ToolError
│   │   └── SandboxLost                  a remote sandbox has ended, with its files
│   ├── A2AClientError                   a remote agent failed, or its server can't be reached
│   │   └── AgentCardResolutionError     its card can't be read, or is refused
│   ├── LlmCallsLimitExceeded
│   ├── PluginFailed
│   ├── GuardrailBlocked           422   a guardrail found something that is not allowed
│   ├── ReplayVerificationError          a replayed run differs from its recording
│   ├── BranchFailed                     one branch of a parallel agent; the others were stopped
│   ├── RunCancelled
│   └── DeadlineExceeded
├── Unavailable                    503   try again later
│   ├── StorageError                     the store refused or could not be reached; also a SessionError
│   │   └── KeyRefused                   the encryption key of the store is missing, wrong or can't be reached
│   ├── StoreInUse                       another server has locked the store
│   ├── TrailCut                         the audit trail was cut while it was read
│   ├── OwnershipLost                    another server runs the session now; also a SessionError
│   └── ToolsetError
│       └── ToolLoadingError             a toolset can't list its tools
│           └── ToolsetInitializationError   … because its server can't be reached, or fails the handshake
├── DecryptionFailed               500   stored data was changed, moved, or encrypted with another key
└── SessionError                         an operation on sessions failed
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import StrEnum
from http import HTTPStatus
from typing import ClassVar, NamedTuple


class GreenroomError(Exception):
    """Root of the tree. `detail` is one sentence for the person who can correct it."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return self.detail  # a KeyError would quote it

    @property
    def code(self) -> str:
        """The name that clients match on, in `type` of an error document and `errorCode` of an event."""
        return type(self).__name__


def error_of(code: str, detail: str) -> GreenroomError:
    """Restores an error from its name and detail. `RunFailed` if no class has that name."""
    kinds: list[type[GreenroomError]] = [GreenroomError]
    for kind in kinds:
        if kind.__name__ == code:
            break
        kinds += kind.__subclasses__()
    else:
        kind = RunFailed

    error = kind.__new__(kind)
    GreenroomError.__init__(error, detail)
    return error


def code_of(error: Exception) -> str:
    """The name under which an error is stored and sent."""
    return error.code if isinstance(error, GreenroomError) else type(error).__name__


def message_of(error: Exception) -> str:
    """Returns the error's text in a form that can be stored: without unpaired surrogates."""
    return str(error).encode(errors="replace").decode()


def as_exception(raised: BaseException) -> Exception:
    """Converts an exception of an app's code into an error that fails its run only, never the server.

    KeyboardInterrupt, SystemExit, GeneratorExit and an unrequested CancelledError become RunFailed.
    Raises a requested cancellation, a KeyboardInterrupt during one, and the GeneratorExit of a
    generator that is being closed, as they are.
    """
    if isinstance(raised, Exception):
        return raised

    if isinstance(raised, (asyncio.CancelledError, KeyboardInterrupt)):
        # asyncio's runner cancels its task on the first SIGINT, and raises KeyboardInterrupt in it on the second.
        task = asyncio.current_task()
        is_cancelling = task is not None and task.cancelling() > 0
        is_requested = is_cancelling or (task is None and isinstance(raised, asyncio.CancelledError))
    else:
        # Closing raises GeneratorExit in the closed frame itself; what a callee raised has the callee's frame, too.
        traceback = raised.__traceback__
        is_requested = isinstance(raised, GeneratorExit) and (traceback is None or traceback.tb_next is None)

    if is_requested:
        raise raised

    error = RunFailed(f"The app's code raised {type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error


def error_classes(root: type[GreenroomError] = GreenroomError) -> Iterator[type[GreenroomError]]:
    """The whole tree of this module, each class once, before those below it."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == __name__ and below.__mro__[1] is root:
            yield from error_classes(below)


class CallerError(GreenroomError):
    status = HTTPStatus.BAD_REQUEST


class SessionError(GreenroomError): ...


class InvalidRequest(CallerError, ValueError):
    """The request is invalid at `location`, a path such as `("body", "newMessage", "parts", 0)`. `others` are further
    faults.
    """

    status = HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, detail: str, *, location: tuple[str | int, ...] = ("body",), kind: str = "value_error") -> None:
        super().__init__(detail)
        self.location = location
        self.kind = kind
        self.others: tuple[InvalidRequest, ...] = ()


class AppNotNamed(CallerError):
    def __init__(self, choice: int) -> None:
        super().__init__("appName is required" + (f": there are {choice} apps to choose from" if choice else ""))
        self.choice = choice


class NotFound(CallerError):
    status = HTTPStatus.NOT_FOUND


class AppNotFound(NotFound):
    def __init__(self, app_name: str, known: list[str] | None = None) -> None:
        apps = f" Known apps: {', '.join(known)}." if known else ""
        super().__init__(f"App not found: {app_name!r}.{apps}")
        self.app_name = app_name
        self.known = known or []


class SessionNotFound(NotFound, SessionError, ValueError):
    def __init__(self, app_name: str, user_id: str, session_id: str) -> None:
        super().__init__(f"Session not found: {session_id!r} of user {user_id!r} in app {app_name!r}")
        self.app_name = app_name
        self.user_id = user_id
        self.session_id = session_id


class RunNotFound(NotFound, ValueError):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run not found: {run_id!r}")
        self.run_id = run_id


class RequestNotFound(NotFound):
    def __init__(self, request_id: str) -> None:
        super().__init__(f"Request not found: {request_id!r}")
        self.request_id = request_id


class ArtifactNotFound(NotFound):
    def __init__(self, filename: str, version: int | None = None) -> None:
        which = "" if version is None else f", version {version}"
        super().__init__(f"Artifact not found: {filename!r}{which}")
        self.filename = filename
        self.version = version


class ScheduleNotFound(NotFound):
    def __init__(self, app_name: str, schedule_id: str) -> None:
        super().__init__(f"App {app_name!r} has no schedule {schedule_id!r}")
        self.app_name = app_name
        self.schedule_id = schedule_id


class TraceNotFound(NotFound):
    def __init__(self) -> None:
        super().__init__("Trace not found")


class AgentNotFound(NotFound):
    def __init__(self, path: str) -> None:
        super().__init__(f"Agent not found: {path!r}")
        self.path = path


class Unauthenticated(CallerError):
    status = HTTPStatus.UNAUTHORIZED


class Forbidden(CallerError):
    status = HTTPStatus.FORBIDDEN


class NotApprover(Forbidden):
    def __init__(self, reason: str) -> None:
        super().__init__(f"This answer is not accepted: {reason}")
        self.reason = reason


class LinkExpired(CallerError):
    status = HTTPStatus.GONE


class TooLarge(CallerError):
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def __init__(self, what: str, *, limit_bytes: int) -> None:
        super().__init__(f"{what} is larger than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class TooManyRequests(CallerError):
    status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1.0

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class TooManyRuns(TooManyRequests):
    def __init__(self, whose: str, limit: int) -> None:
        which = "server" if whose == "server" else f"same {whose}"
        super().__init__(f"No more than {limit} runs of the {which} may be active at once")
        self.whose = whose
        self.limit = limit


class UnsupportedEncoding(CallerError):
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE

    def __init__(self, encoding: str) -> None:
        super().__init__(f"Request bodies are not taken as {encoding!r}; send them as they are")
        self.encoding = encoding


class UnsupportedMediaType(CallerError):
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class AgentConfigError(CallerError, ValueError): ...


class MissingVariable(AgentConfigError, KeyError):
    def __init__(self, agent: str, variable: str) -> None:
        what = f"The instruction of agent {agent!r} needs {{{variable}}}, which the session's state does not have."
        super().__init__(f"{what} Write {{{variable}?}} if it may be absent.")
        self.agent = agent
        self.variable = variable


class ReplayConfigError(AgentConfigError): ...


class ConfigurationError(CallerError):
    """The configuration has faults, one line each, which begins with the location."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class NotOffered(CallerError):
    status = HTTPStatus.NOT_IMPLEMENTED


class MissingExtra(CallerError, ImportError):
    status = HTTPStatus.NOT_IMPLEMENTED

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed; get it with: pip install 'greenroom[{extra}]'")
        self.extra = extra
        self.package = package


class Conflict(GreenroomError):
    status = HTTPStatus.CONFLICT


class SessionExists(Conflict, SessionError):
    def __init__(self, app_name: str, user_id: str, session_id: str) -> None:
        super().__init__(f"Session already exists: {session_id!r} of user {user_id!r} in app {app_name!r}")
        self.app_name = app_name
        self.user_id = user_id
        self.session_id = session_id


class SessionBusy(Conflict, SessionError):
    def __init__(self, session_id: str, run_id: str) -> None:
        super().__init__(f"Session {session_id!r} is busy with run {run_id!r}")
        self.session_id = session_id
        self.run_id = run_id


class NotWaiting(Conflict):
    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(f"Run {run_id!r} does not wait for {what}")
        self.run_id = run_id


class NotRetryable(Conflict):
    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"Run {run_id!r} can't be retried: {reason}")
        self.run_id = run_id


class SignalRepeated(Conflict):
    def __init__(self, run_id: str, name: str) -> None:
        super().__init__(f"Run {run_id!r} has received this signal {name!r} before")
        self.run_id = run_id


class SignalsFull(Conflict):
    def __init__(self, run_id: str, limit: str) -> None:
        super().__init__(f"Run {run_id!r} can't store more signals before it waits for some: it has {limit}")
        self.run_id = run_id


class SessionFull(Conflict, SessionError):
    def __init__(self, session_id: str, limit: int) -> None:
        super().__init__(f"Session {session_id!r} has the {limit} events that it may have; open a new one")
        self.session_id = session_id
        self.limit = limit


class ScheduleConflict(Conflict):
    def __init__(self, schedule_id: str, reason: str) -> None:
        super().__init__(f"Schedule {schedule_id!r} {reason}")
        self.schedule_id = schedule_id


class TooManySchedules(Conflict):
    def __init__(self, whose: str, limit: int) -> None:
        super().__init__(f"{whose} has the {limit} schedules that it may have; delete one")
        self.limit = limit


class TooMuchFeedback(Conflict):
    def __init__(self, event_id: str, limit: int) -> None:
        super().__init__(f"Event {event_id!r} has the feedback of {limit} names and callers that it may have")
        self.event_id = event_id
        self.limit = limit


class WebhookConflict(Conflict):
    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"Webhook {webhook_id!r} is in the code of its app, and is changed there")
        self.webhook_id = webhook_id


class AccessConflict(Conflict):
    """The detail says which key, service account or role prevents the change."""


class TooManyVersions(Conflict):
    def __init__(self, app_name: str, limit: int) -> None:
        super().__init__(f"App {app_name!r} has the {limit} published versions that it may have; delete one")
        self.app_name = app_name
        self.limit = limit


class VersionInUse(Conflict):
    def __init__(self, app_name: str, version: str) -> None:
        super().__init__(f"Version {version!r} of app {app_name!r} has a share of the traffic; take it out first")
        self.app_name = app_name
        self.version = version


class ApprovalRefused(Conflict):
    def __init__(self, reason: str) -> None:
        super().__init__(f"This approval is not accepted: {reason}")
        self.reason = reason


class RequestClosed(Conflict):
    def __init__(self, request_id: str, outcome: str) -> None:
        super().__init__(f"Request {request_id!r} takes no answer: {outcome}")
        self.request_id = request_id


class AppVersionChanged(Conflict):
    def __init__(self, run_id: str, was: str, now: str, *, policy: str, seq: int, difference: str) -> None:
        """seq, difference: the first event that differs when the run is replayed with the present code, and how."""
        super().__init__(
            f"Run {run_id!r} began with version {was} of its app and would differ in version {now}, which has "
            f"on_version_change={policy!r}. Event {seq}: {difference}. "
            f"{'This server does not have the earlier version. ' if policy == 'pin' else ''}"
            "Start a new run, or bring the earlier version back"
        )
        self.run_id = run_id
        self.was = was
        self.now = now
        self.seq = seq
        self.difference = difference


class IdempotencyConflict(Conflict):
    status = HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was already used for another request")
        self.key = key


class RunFailed(GreenroomError): ...


class RunGivenUp(RunFailed):
    def __init__(self, stalled: int) -> None:
        super().__init__(f"The run was cut off {stalled} times without storing an event; it is given up")
        self.stalled = stalled


class AppLoadError(RunFailed):
    def __init__(self, app_name: str, reason: str) -> None:
        super().__init__(f"App {app_name!r} can't be loaded: {reason}")
        self.app_name = app_name
        self.reason = reason


class RetryStrategy(StrEnum):
    """Pauses before a failed model call is repeated."""

    IMMEDIATE_RETRY = "IMMEDIATE_RETRY"
    FIXED_DELAY = "FIXED_DELAY"
    EXPONENTIAL_BACKOFF = "EXPONENTIAL_BACKOFF"
    NO_RETRY = "NO_RETRY"

    def delay_ms(self, attempt: int) -> int:
        """Milliseconds before an attempt, counted from 0; -1 for no retry."""
        if self is RetryStrategy.NO_RETRY:
            return -1
        if self is RetryStrategy.IMMEDIATE_RETRY:
            return 0
        if self is RetryStrategy.FIXED_DELAY:
            return 1000
        return min(1000 * 2 ** min(attempt, 5), 30_000)


class ModelErrorCategory(StrEnum):
    AUTH_ERROR = "AUTH_ERROR"
    CLIENT_ERROR = "CLIENT_ERROR"
    RATE_LIMITED = "RATE_LIMITED"
    SERVER_ERROR = "SERVER_ERROR"
    TIMEOUT_ERROR = "TIMEOUT_ERROR"
    NETWORK_ERROR = "NETWORK_ERROR"
    MODEL_ERROR = "MODEL_ERROR"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def strategy(self) -> RetryStrategy:
        return _STRATEGIES.get(self, RetryStrategy.NO_RETRY)

    @property
    def is_retryable(self) -> bool:
        return self.strategy is not RetryStrategy.NO_RETRY


_STRATEGIES = {
    ModelErrorCategory.RATE_LIMITED: RetryStrategy.EXPONENTIAL_BACKOFF,
    ModelErrorCategory.SERVER_ERROR: RetryStrategy.EXPONENTIAL_BACKOFF,
    ModelErrorCategory.TIMEOUT_ERROR: RetryStrategy.EXPONENTIAL_BACKOFF,
    ModelErrorCategory.NETWORK_ERROR: RetryStrategy.FIXED_DELAY,
}


class MappedError(NamedTuple):
    """A provider's error in terms that all providers share."""

    category: ModelErrorCategory
    strategy: RetryStrategy
    message: str
    """The category, and the provider's message without secrets."""


class ModelError(RunFailed):
    """A model provider failed. `retryable` says whether the same request may succeed later.

    category: a `ModelErrorCategory`. http_status, retry_after_seconds: from the provider's response, if any.
    """

    def __init__(self, detail: str, *, model: str, retryable: bool = False, category: str = "UNKNOWN_ERROR") -> None:
        super().__init__(detail)
        self.model = model
        self.retryable = retryable
        self.category = category
        self.http_status: int | None = None
        self.retry_after_seconds: float | None = None

    @property
    def mapped(self) -> MappedError:
        category = ModelErrorCategory(self.category)
        strategy = category.strategy if self.retryable else RetryStrategy.NO_RETRY
        return MappedError(category, strategy, self.detail)


class MessageConversionError(ModelError, ValueError): ...


class MissingProject(ModelError, ValueError): ...


class ModelNotFound(ModelError, ValueError):
    def __init__(self, model: str, known: list[str]) -> None:
        patterns = ", ".join(known)
        super().__init__(f"No model provider knows the name {model!r}. Known name patterns: {patterns}", model=model)


class ToolError(RunFailed): ...


class SandboxLost(ToolError):
    """service: what ran the sandbox: `E2B`."""

    def __init__(self, service: str) -> None:
        super().__init__(
            f"The sandbox at {service} has ended: it was not used for too long, or the service stopped it. Its files "
            "and processes are lost. The next command or file starts a new, empty sandbox"
        )
        self.service = service


class ToolDeclarationError(AgentConfigError, ToolError):
    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"Tool {tool!r} can't be declared to a model: {reason}")
        self.tool = tool


class A2AClientError(RunFailed):
    def __init__(self, reason: str) -> None:
        super().__init__(f"A2A request failed: {reason}")
        self.reason = reason


class AgentCardResolutionError(A2AClientError): ...


class LlmCallsLimitExceeded(RunFailed):
    def __init__(self, limit: int) -> None:
        super().__init__(f"The run made more than {limit} model calls (RunConfig.max_llm_calls)")
        self.limit = limit


class PluginFailed(RunFailed):
    def __init__(self, plugin: str, hook: str, error: Exception) -> None:
        super().__init__(f"Plugin {plugin!r} failed in {hook}: {type(error).__name__}: {error}")
        self.plugin = plugin
        self.hook = hook


class GuardrailBlocked(RunFailed):
    """A guardrail has ended the run.

    check: its name. where: `user_message`, `model_output`, `tool_arguments` or `tool_results`. label: names the
    violation without quoting it.
    """

    status = HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, check: str, where: str, label: str) -> None:
        what = where.replace("_", " ")
        super().__init__(f"The guardrail {check!r} has blocked the {what}" + (f": {label}" if label != check else ""))
        self.check = check
        self.where = where
        self.label = label


class ReplayVerificationError(RunFailed):
    """A replayed run differs from its recording.

    agent: the agent whose request or call differs. difference: lines of a unified diff; empty if there are none.
    """

    def __init__(self, agent: str, what: str, difference: str = "") -> None:
        super().__init__(f"Agent {agent!r}: {what}" + (f"\n{difference}" if difference else ""))
        self.agent = agent
        self.difference = difference


class BranchFailed(RunFailed):
    def __init__(self, branch: str, error: Exception) -> None:
        super().__init__(f"Branch {branch!r} failed: {type(error).__name__}: {error}")
        self.branch = branch


class RunCancelled(RunFailed):
    status = HTTPStatus.CONFLICT

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"Run {run_id!r} was cancelled: {reason}")
        self.run_id = run_id
        self.reason = reason


class DeadlineExceeded(RunFailed):
    status = HTTPStatus.GATEWAY_TIMEOUT

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The run took longer than its deadline of {seconds:g} s")
        self.seconds = seconds


class Unavailable(GreenroomError):
    status = HTTPStatus.SERVICE_UNAVAILABLE


class StorageError(Unavailable, SessionError):
    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"{operation} failed in the store: {reason}")
        self.operation = operation
        self.reason = reason


class TrailCut(Unavailable):
    """The audit trail was cut while it was read."""

    def __init__(self) -> None:
        super().__init__("The audit trail was cut meanwhile; try again")


class KeyRefused(StorageError):
    """The key that encrypts a store can't be used."""

    def __init__(self, reason: str) -> None:
        super().__init__("Opening the encrypted data", reason)
        self.detail = f"The encryption keys can't be used: {reason}"


class DecryptionFailed(GreenroomError):
    """An encrypted value was changed, moved to another row, or encrypted with another key.

    place: the table, then what identifies the row.
    """

    def __init__(self, *place: str | int | None) -> None:
        table, *row = place
        shown = ", ".join(str(one) for one in row if one is not None)
        super().__init__(
            f"The stored data of {table} ({shown}) can't be decrypted: it was changed or moved, or is not encrypted as "
            "it must be"
        )
        self.place = place


class StoreInUse(Unavailable):
    """Another server has locked the store.

    process_id: the id of that server's process; None if it can't be read.
    """

    def __init__(self, path: str, process_id: int | None) -> None:
        holder = "another server"
        if process_id is not None:
            holder = f"the server with process id {process_id}"
        super().__init__(
            f"{path} is in use by {holder}. Two servers on one database would run the same runs twice: stop that one, "
            "or name another database with --session-service"
        )
        self.path = path
        self.process_id = process_id


class OwnershipLost(Unavailable, SessionError):
    """This server is no longer, or not yet, the one that runs a session, and has written nothing."""

    app_name: str = ""
    user_id: str = ""
    session_id: str = ""
    """The session; empty in an error that a client has received."""

    def __init__(self, app_name: str, user_id: str, session_id: str) -> None:
        super().__init__(f"Another server on the same store runs session {session_id!r} now. Send the request again")
        self.app_name = app_name
        self.user_id = user_id
        self.session_id = session_id


class ToolsetError(Unavailable): ...


class ToolLoadingError(ToolsetError):
    def __init__(self, toolset: str, reason: str) -> None:
        super().__init__(f"The tools of {toolset} can't be loaded: {reason}")
        self.toolset = toolset
        self.reason = reason


class ToolsetInitializationError(ToolLoadingError): ...


# Names of ADK for the same errors.
AlreadyExistsError = Conflict
InputValidationError = InvalidRequest
LlmCallsLimitExceededError = LlmCallsLimitExceeded
NotFoundError = NotFound
SessionNotFoundError = SessionNotFound
