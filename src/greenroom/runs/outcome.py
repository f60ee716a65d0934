"""What became of a run, told from its events."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.errors import ApprovalRefused, GreenroomError, RunCancelled
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.calls import is_last_word, ledger_of, request_digest, requests_in, responses_in
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.run import RunError, RunStatus
from greenroom.runner.commit import ABORTED

_CANCELLED = RunCancelled.__name__
_COUNTS = (
    "prompt_token_count",
    "candidates_token_count",
    "total_token_count",
    "thoughts_token_count",
    "cached_content_token_count",
    "tool_use_prompt_token_count",
)


class RunTally:
    """usage: what earlier stretches of the same run used. asked: what they asked of people, see `Run.asked`.
    was_failed: the newest event ended the run, whatever waits beside it."""

    __slots__ = ("_last_error", "_open_calls", "asked", "usage", "was_failed")

    def __init__(
        self, usage: GenerateContentResponseUsageMetadata | None = None, asked: Mapping[str, str] | None = None
    ) -> None:
        self.usage = usage
        self.asked = dict(asked or {})
        self._open_calls: set[str] = set()
        self._last_error: RunError | None = None
        self.was_failed = False

    def add(self, event: Event, *, is_of_this_stretch: bool = True) -> None:
        """is_of_this_stretch: this server wrote the event since the run's newest message. What it asks is taken from no
        other events: who opens a session may bring a log along."""
        if event.partial:
            return
        if is_of_this_stretch:
            for request in requests_in(event):
                self.asked[request.id or ""] = request_digest(event, request)
        if event.usage_metadata is not None:
            self.usage = _sum(self.usage, event.usage_metadata)
        if event.long_running_tool_ids:
            self._open_calls.update(event.long_running_tool_ids)
        for response in event.get_function_responses():
            if is_last_word(event, response):
                self._open_calls.discard(response.id or "")
        self._last_error = _failure(event)

    def status(self, error: Exception | None) -> RunStatus:
        was_cancelled = self._last_error is not None and self._last_error.code == _CANCELLED
        if isinstance(error, RunCancelled) or (error is None and was_cancelled):
            return RunStatus.CANCELLED
        if error is not None:
            return RunStatus.FAILED
        if self._open_calls and not self.was_failed:
            return RunStatus.WAITING  # whatever another branch said last
        return RunStatus.FAILED if self._last_error is not None else RunStatus.SUCCEEDED

    def error(self, error: Exception | None) -> RunError | None:
        if error is None:
            return self._last_error if self.status(None) is not RunStatus.WAITING else None
        if isinstance(error, GreenroomError):
            return RunError(code=error.code, message=error.detail, status=int(error.status))
        return RunError(code=type(error).__name__, message=str(error), status=500)


def check_asked(events: CopyOnWriteList[Event], message: Content | None, asked: Mapping[str, str]) -> None:
    """Raises ApprovalRefused when the message answers a request that the run did not make, or not like this."""
    ledger = ledger_of(events)
    for response in responses_in(message):
        request = ledger.find_request(response.id)
        if request is not None and asked.get(response.id or "") != request_digest(request.event, request.call):
            raise ApprovalRefused("no run of this session asks for it")


def without_answered(asked: Mapping[str, str], message: Content | None) -> dict[str, str]:
    answered = {response.id for response in responses_in(message)}
    return {request_id: made for request_id, made in asked.items() if request_id not in answered}


def _failure(event: Event) -> RunError | None:
    """What failed the run, if this is the event that ends it. A reply that the model cut short is none."""
    code = event.error_code
    if code is None or (event.content is not None and not event.interrupted and not event.get_function_responses()):
        return None
    return RunError(code=_CANCELLED if code == ABORTED else code, message=event.error_message or code)


def _sum(
    so_far: GenerateContentResponseUsageMetadata | None, more: GenerateContentResponseUsageMetadata
) -> GenerateContentResponseUsageMetadata:
    total = GenerateContentResponseUsageMetadata()
    for field in _COUNTS:
        a: int | None = getattr(so_far, field) if so_far is not None else None
        b: int | None = getattr(more, field)
        if a is not None or b is not None:
            setattr(total, field, (a or 0) + (b or 0))
    return total
