"""The figures of a run since it was counted last, from its record and the session's log.

Calls count at the time of their events, and the end of a run at its own time, so all figures can be computed again from
what is stored. A small log of a run that was requested at 10.0, and what is counted of each line:

    10.1  user  "Pay 5"
    12.1  desk  call c-1 pay(), 90 tokens    an answer of the model after 2.0 s, and a call of `pay`
    12.6  desk  response c-1 {"paid": 5}     0.5 s of `pay`
    13.6  desk  "Done", 120 tokens           an answer after 1.0 s

The record, with the status `succeeded`, the end 13.7 and the first text 13.6, adds the run, its duration of 3.7 s, and
the 3.6 s to the first text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from greenroom.log.retries import FAILED_CALLS
from greenroom.records.content import FunctionResponse
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUEST_INPUT, REQUESTS
from greenroom.records.run import Run, RunStatus
from greenroom.statistics.figures import COST_UNITS, PER_LOG, SHORTEST_SECONDS, Sum
from greenroom.usage.prices import Price, PriceTable

MINUTE, HOUR, DAY = 60, 3600, 86400

Kind: TypeAlias = Literal["run", "model", "tool", "user"]
"""Sums of the ended runs of an app, of the calls of a model or tool by an app, and of all that a user's runs do."""

SumKey: TypeAlias = tuple[Kind, str, str, int]
"""The kind, the app, the name of the model or tool or the user's id (empty for runs), and the Unix seconds of the begin
of the minute or, of users, of the day."""

Sums: TypeAlias = dict[SumKey, Sum]

REPORTED_ERROR = "error"
"""The code of a tool's failure that its result reports in the field `error`."""

ENDS = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})
MAX_NAME_LENGTH = 200

_FRAMEWORK_CALLS = REQUESTS | {REQUEST_INPUT}


class RunFigures:
    """Figures that a write of a run's record adds to the sums: its end, and the events that aren't counted yet."""

    __slots__ = (
        "app_name", "ended_at", "error_code", "events", "first_text_at", "is_attempted", "number", "own_prices",
        "prices", "requested_at", "run_id", "status", "summaries", "user_id", "was_delayed",
    )  # fmt: skip

    def __init__(
        self,
        run: Run,
        events: Sequence[Event],
        *,
        summaries: Sequence[Event] = (),
        has_ended: bool,
        prices: PriceTable | None,
        own_prices: Mapping[str, Price | None] | None = None,
    ) -> None:
        """Takes the figures, and notes in the record that they are counted.

        events: those of the log since the run was counted last. summaries: events of compactions that it has made since
        then. has_ended: whether its end is counted, too. prices: None if no model has reported its usage. own_prices:
        prices of the run by model, which come first.
        """
        run.counted += 1
        self.run_id = run.id
        self.number = run.counted
        """Of the run's figures, from 1 on; the record has that of the newest."""
        self.app_name = run.app_name
        self.user_id = run.user_id
        self.status = run.status.value if has_ended and run.status in ENDS else None
        """None if the run has not ended, or its end is counted."""
        self.error_code = run.error.code if run.error is not None and run.status is RunStatus.FAILED else None
        self.requested_at = run.created_at if run.requested_at is None else run.requested_at
        self.ended_at = run.ended_at or 0.0
        self.first_text_at = run.first_text_at
        self.was_delayed = run.start_at is not None
        self.events = events
        self.summaries = summaries
        self.prices = prices
        self.own_prices = own_prices
        self.is_attempted = False
        """True after a write that may have been stored, since nobody knows."""


def first_text_in(events: Iterable[Event], run_id: str, since: float) -> float | None:
    """The time of a run's first text after a time, as far as the log shows it: when it was complete."""
    for event in events:
        if event.invocation_id == run_id and event.author != "user" and event.timestamp >= since and has_text(event):
            return event.timestamp
    return None


def has_text(event: Event) -> bool:
    """Whether an event has text that isn't a thought."""
    parts = event.content.parts if event.content is not None else None
    return any(part.text and not part.thought for part in parts or ())


def add_figures(sums: Sums, figures: Iterable[RunFigures]) -> None:
    """Adds the figures of runs to sums. It runs for each turn, so its inner loop calls few functions."""
    for run in figures:
        day = int(run.ended_at) // DAY * DAY
        user_key: SumKey = ("user", run.app_name, run.user_id, day)
        of_user = sums.get(user_key)
        if of_user is None:
            of_user = sums[user_key] = Sum()
        if run.status is not None:
            _add_end(sums, of_user, run)

        newest_at: dict[str | None, float] = {}
        called_at: dict[str | None, float] = {}
        for event in run.events:
            if event.invocation_id != run.run_id:
                continue
            at = event.timestamp
            if event.author != "user":
                if not day <= at < day + DAY:
                    day = int(at) // DAY * DAY
                    of_user = _sum(sums, "user", run.app_name, run.user_id, day)
                if event.usage_metadata is not None or event.model_version is not None:
                    _add_answer(sums, of_user, run, event, asked_at=_asked_at(newest_at, event.branch))
                content = event.content
                if content is not None and content.parts:
                    for part in content.parts:
                        if part.function_call is not None:
                            call = part.function_call
                            if call.name in _FRAMEWORK_CALLS and call.id in (event.long_running_tool_ids or ()):
                                continue
                            _sum(
                                sums, "tool", run.app_name, call.name or "", int(at) // MINUTE * MINUTE
                            ).tool_calls += 1
                            of_user.tool_calls += 1
                            called_at[call.id] = at
                        elif part.function_response is not None:
                            _add_response(sums, run, event, part.function_response, called_at)
            newest_at[event.branch] = at

        for summary in run.summaries:
            if summary.usage_metadata is not None:
                day = int(summary.timestamp) // DAY * DAY
                of_user = _sum(sums, "user", run.app_name, run.user_id, day)
                _add_answer(sums, of_user, run, summary, asked_at=None)


def _add_end(sums: Sums, of_user: Sum, run: RunFigures) -> None:
    """Adds the end of a run."""
    status = run.status or ""
    key: SumKey = ("run", run.app_name, "", int(run.ended_at) // MINUTE * MINUTE)
    of_app = sums.get(key)
    if of_app is None:
        of_app = sums[key] = Sum()

    duration: int | None = None
    if not run.was_delayed:  # otherwise it was cancelled before its time
        duration = math.ceil(math.log(max(run.ended_at - run.requested_at, SHORTEST_SECONDS)) * PER_LOG)
    first_text: int | None = None
    if run.first_text_at is not None:
        first_text = math.ceil(math.log(max(run.first_text_at - run.requested_at, SHORTEST_SECONDS)) * PER_LOG)

    for one in (of_app, of_user):
        runs = one.runs
        if runs is None:
            one.runs = {status: 1}
        else:
            runs[status] = runs.get(status, 0) + 1
        if run.error_code is not None:
            one.count_error(run.error_code)
        if duration is not None:
            durations = one.duration
            if durations is None:
                one.duration = {duration: 1}
            else:
                durations[duration] = durations.get(duration, 0) + 1
        if first_text is not None:
            first_texts = one.first_text
            if first_texts is None:
                one.first_text = {first_text: 1}
            else:
                first_texts[first_text] = first_texts.get(first_text, 0) + 1


def _add_answer(sums: Sums, of_user: Sum, run: RunFigures, event: Event, *, asked_at: float | None) -> None:
    """Adds an answer of a model. asked_at: when it was asked."""
    at = event.timestamp
    model = event.model_version or ""
    of_model = _sum(sums, "model", run.app_name, model, int(at) // MINUTE * MINUTE)
    of_model.model_calls += 1
    of_user.model_calls += 1
    if asked_at is not None:
        bucket = math.ceil(math.log(max(at - asked_at, SHORTEST_SECONDS)) * PER_LOG)
        durations = of_model.duration
        if durations is None:
            of_model.duration = {bucket: 1}
        else:
            durations[bucket] = durations.get(bucket, 0) + 1
    if event.error_code is not None:
        of_model.count_error(str(event.error_code))
    usage = event.usage_metadata
    if usage is None:
        return

    input_tokens = usage.input_tokens
    output_tokens = usage.output_tokens
    cached_tokens = usage.cached_content_token_count or 0
    price = run.own_prices.get(model) if run.own_prices else None
    if price is None and run.prices is not None:
        price = run.prices.find(model)
    cost = 0
    unpriced_tokens = 0
    if price is None:
        unpriced_tokens = max(usage.total_token_count or 0, input_tokens + output_tokens)
    else:
        per_input, per_cached, per_output = _units_of(price)
        cost = max(input_tokens - cached_tokens, 0) * per_input
        cost += cached_tokens * per_cached + output_tokens * per_output

    of_model.input_tokens += input_tokens
    of_user.input_tokens += input_tokens
    of_model.output_tokens += output_tokens
    of_user.output_tokens += output_tokens
    if cached_tokens:
        of_model.cached_tokens += cached_tokens
        of_user.cached_tokens += cached_tokens
    if unpriced_tokens:
        of_model.unpriced_tokens += unpriced_tokens
        of_user.unpriced_tokens += unpriced_tokens
    else:
        of_model.cost += cost
        of_user.cost += cost


def _add_response(
    sums: Sums, run: RunFigures, event: Event, response: FunctionResponse, called_at: dict[str | None, float]
) -> None:
    """Adds the outcome of a call, unless it waits for an approval or a login.

    called_at: the times of calls without a response, by id.
    """
    actions = event.actions
    if response.id in actions.requested_tool_confirmations or response.id in actions.requested_auth_configs:
        return
    at = event.timestamp
    began_at = called_at.pop(response.id, None)
    code: str | None = None
    if response.response is not None and response.response.get("error"):
        code = REPORTED_ERROR
        if event.error_code is not None and response.id in (event.custom_metadata or {}).get(FAILED_CALLS, ()):
            code = str(event.error_code)
    if began_at is None and code is None:
        return

    of_tool = _sum(sums, "tool", run.app_name, response.name or "", int(at) // MINUTE * MINUTE)
    if began_at is not None:
        bucket = math.ceil(math.log(max(at - began_at, SHORTEST_SECONDS)) * PER_LOG)
        durations = of_tool.duration
        if durations is None:
            of_tool.duration = {bucket: 1}
        else:
            durations[bucket] = durations.get(bucket, 0) + 1
    if code is not None:
        of_tool.count_error(code)


def _asked_at(newest_at: Mapping[str | None, float], branch: str | None) -> float | None:
    """The time of the newest event of a branch, or of one that it is in."""
    while branch and branch not in newest_at:
        branch = branch.rpartition(".")[0] or None
    return newest_at.get(branch)


def _sum(sums: Sums, kind: Kind, app_name: str, name: str, time: int) -> Sum:
    if kind != "user" and (len(name) > MAX_NAME_LENGTH or not name.isascii() or "\0" in name):
        name = _storable(name)
    key: SumKey = (kind, app_name, name, time)
    found = sums.get(key)
    if found is None:
        found = sums[key] = Sum()
    return found


def _storable(name: str) -> str:
    """A name as databases can store it: models may make up any."""
    return name.replace("\0", "")[:MAX_NAME_LENGTH].encode(errors="replace").decode()


@lru_cache(maxsize=1000)
def _units_of(price: Price) -> tuple[int, int, int]:
    """The cost of a token of input, cached input and output, in COST_UNITS."""
    scale = COST_UNITS // 1_000_000
    return round(price.input * scale), round(price.cached_input * scale), round(price.output * scale)
