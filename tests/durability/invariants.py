"""Invariants of every session, however often its server died. Seen from outside: JSON as the server serves it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = "dict[str, Any]"

REMOVED = "__ADK_SENTINEL_REMOVED__"
"""In a delta: the key is removed. Source: ADK for Java."""

INTERRUPTED = {"error": "The call was interrupted. Whether it had any effect is not known."}


def check_log(log: list[Json]) -> None:
    """No event is there twice, and every call is answered exactly once, behind it."""
    ids = [event["id"] for event in log]
    assert len(set(ids)) == len(ids), "an event is stored twice"
    assert not any(event.get("partial") for event in log)
    calls: list[str] = []
    answers: list[str] = []
    for event in log:
        calls += [call["id"] for call in calls_of(event)]
        made = [response["id"] for response in responses_of(event)]
        assert set(made) <= set(calls), "an answer stands before its call"
        answers += made
    assert len(set(calls)) == len(calls)
    assert Counter(answers) == Counter(calls)


def check_messages(log: list[Json], messages: Iterable[str]) -> None:
    """Each message of the user is there once."""
    stored = [text_of(event) for event in log if event["author"] == "user" and text_of(event)]
    assert sorted(stored) == sorted(messages)


def check_seen(log: list[Json], seen: list[tuple[int, Json]], *, run_id: str | None, with_user_events: bool) -> None:
    """A client saw the stored events of its run, or of the session, once each, in order, as they are stored.

    with_user_events False: it may have seen the user's or not.
    """
    places = [place for place, _ in seen]
    assert places == sorted(set(places)), f"seen twice or out of order: {places}"
    for place, event in seen:
        assert place <= len(log), f"the event at place {place} was lost"
        assert event == log[place - 1], f"another event is at place {place} than the one that was seen"
    expected = {
        place
        for place, event in enumerate(log, 1)
        if (run_id is None or event["invocationId"] == run_id) and (with_user_events or event["author"] != "user")
    }
    assert expected <= set(places), f"missed the places {sorted(expected - set(places))}"
    assert all(run_id is None or log[place - 1]["invocationId"] == run_id for place in places)


def check_state(log: list[Json], state: Json) -> None:
    """The session's own state is the fold of its deltas."""
    own = {key: value for key, value in state.items() if not key.startswith(("app:", "user:"))}
    assert own == {key: value for key, value in fold([log]).items() if not key.startswith(("app:", "user:"))}


def check_shared_state(prefix: str, logs: Iterable[list[Json]], state: Json) -> None:
    """State of the app or of a user is the fold of the deltas of all its sessions, which write no key in common."""
    shared = {key: value for key, value in state.items() if key.startswith(prefix)}
    assert shared == {key: value for key, value in fold(logs).items() if key.startswith(prefix)}


def fold(logs: Iterable[list[Json]]) -> Json:
    state: Json = {}
    for log in logs:
        for event in log:
            for key, value in event["actions"]["stateDelta"].items():
                if value == REMOVED:
                    state.pop(key, None)
                else:
                    state[key] = value
    return state


def check_tools(lines: list[Json], logs: dict[str, list[Json]], *, restarts: int) -> Counter[str]:
    """No call ran again after its answer was stored; a charge never ran twice, and ran whole if its result is stored.

    lines: of all processes. logs: by session id. Returns how often what happened.
    """
    counts: Counter[str] = Counter()
    by_call: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for line in lines:
        by_call[line["session"], line["call"]].append(line)
    answers = {
        (session, response["id"]): (response["response"], event["timestamp"])
        for session, log in logs.items()
        for event in log
        for response in responses_of(event)
    }
    for call, of_call in by_call.items():
        begins = [line for line in of_call if line["phase"] == "begin"]
        ends = [line for line in of_call if line["phase"] == "end"]
        response, answered_at = answers[call]
        assert len({line["key"] for line in of_call}) == 1, "the idempotency key changed"
        assert all(line["time"] <= answered_at for line in begins), f"{call} ran again after its answer was stored"
        is_interrupted = response == INTERRUPTED
        if of_call[0]["tool"] == "charge":
            assert len(begins) == 1, f"{call} ran {len(begins)} times"
            assert is_interrupted or len(ends) == 1
            counts["charges reported as interrupted"] += is_interrupted
        else:
            assert len(begins) <= restarts + 1
            assert is_interrupted or ends
            counts["calls that were repeated"] += len(begins) > 1
        counts["calls"] += 1
    for (session, call_id), (response, _) in answers.items():
        ran = (session, call_id) in by_call
        assert ran or response == INTERRUPTED or "transfer" in json.dumps(_call(logs[session], call_id))
    return counts


def read_lines(diary: Path) -> list[Json]:
    return [json.loads(line) for line in diary.read_bytes().splitlines()] if diary.exists() else []


def _call(log: list[Json], call_id: str) -> Json:
    return next(call for event in log for call in calls_of(event) if call["id"] == call_id)


def calls_of(event: Json) -> list[Json]:
    return [part["functionCall"] for part in _parts(event) if "functionCall" in part]


def responses_of(event: Json) -> list[Json]:
    return [part["functionResponse"] for part in _parts(event) if "functionResponse" in part]


def text_of(event: Json) -> str:
    return "".join(part.get("text", "") for part in _parts(event))


def _parts(event: Json) -> list[Json]:
    return (event.get("content") or {}).get("parts") or []
