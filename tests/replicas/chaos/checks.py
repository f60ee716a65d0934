"""Invariants of each session, run and call, and of all that clients have seen, whatever happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from greenroom.records.session import SessionKey
from tests.durability.invariants import INTERRUPTED, calls_of, check_state, responses_of, text_of
from tests.replicas.chaos.agents import LONG_RUNNING, SLEEPS, last_words
from tests.replicas.chaos.client import Client, Json, SeenRun
from tests.replicas.chaos.journal import Journal
from tests.replicas.chaos.live_client import Live
from tests.replicas.chaos.native_clients import NODE_INTERRUPTED, Chat, NativeClient, Steers
from tests.replicas.chaos.store import StoredSession, is_internal
from tests.replicas.chaos.waiting_clients import Votes

APPROVAL = "adk_request_confirmation"

_NEEDS_APPROVAL = ("pay", "inspect", "remit")
_RETRIED = ("draw", "lookup", "inspect", *SLEEPS)
_SPEAKERS = {"desk": 1, "team": 4, "flow": 2}
"""Number of agents of an app that say the last words of a run."""


class Problem(NamedTuple):
    what: str
    client: str | None = None
    session: SessionKey | None = None


class Checks:
    """Compares what is stored with what clients asked for and saw."""

    def __init__(self, stored: Mapping[SessionKey, StoredSession], clients: Iterable[Client], journal: Journal) -> None:
        self.problems: list[Problem] = []
        self._stored = stored
        self._clients = list(clients)
        self._journal = journal

    def check_all(self) -> list[Problem]:
        expected: dict[SessionKey, tuple[Client, list[SeenRun]]] = {}
        for client in self._clients:
            for run in client.runs:
                for key in self._keys_of(run):
                    expected.setdefault(key, (client, []))[1].append(run)

        for key, session in self._stored.items():
            if key not in expected:
                self.problems.append(Problem("nobody has asked for this session", None, key))
                continue
            client, runs = expected[key]
            for check in (_check_order, _check_calls, _check_state, _check_read_messages):
                self._note(client, key, lambda check=check, session=session: check(session))
            self._note(client, key, lambda session=session: self._check_ledger(session))
            self._note(
                client, key, lambda client=client, session=session, runs=runs: _check_messages(client, session, runs)
            )
            self._note(client, key, lambda session=session, runs=runs: self._check_runs(session, runs))
            self._note(client, key, lambda client=client, session=session: _check_sleeps(client, session))
            if isinstance(client, NativeClient):
                self._note(client, key, lambda session=session, runs=runs: _check_run_ids(session, runs))
            if isinstance(client, Votes):
                self._note(client, key, lambda client=client, session=session: _check_votes(client, session))

        for client in self._clients:
            for run in client.runs:
                self._note(client, run.key, lambda client=client, run=run: self._check_seen(client, run))
            if isinstance(client, Chat):
                self._note(client, client.key, lambda client=client: self._check_followed(client))
        return self.problems

    def _note(self, client: Client, key: SessionKey, check: Callable[[], None]) -> None:
        try:
            check()
        except AssertionError as error:
            self.problems.append(Problem(str(error), client.name, key))

    def _keys_of(self, run: SeenRun) -> list[SessionKey]:
        """The sessions of a run. Of a client of OpenAI, all of its user: each try may have made one."""
        if run.key.session_id:
            return [run.key]
        return [key for key in self._stored if key[:2] == run.key[:2]]

    def _session_of(self, run: SeenRun) -> StoredSession:
        """The session in which the client's run was."""
        for key in self._keys_of(run):
            session = self._stored.get(key)
            if session is not None and (run.id is None or run.id in session.runs):
                return session
        raise AssertionError(f"run {run.id} of {run.message!r} is not stored")

    def _check_runs(self, session: StoredSession, runs: list[SeenRun]) -> None:
        allowed: set[str] = set()
        for run in runs:
            allowed |= run.statuses
        if runs[0].way == "chat completion":
            allowed.add("cancelled")  # its client has lost the connection
        for run_id, record in session.runs.items():
            assert record["status"] in allowed, f"run {run_id} is {record['status']}: {record.get('error')}"
            if record["status"] == "failed":
                assert record["error"]["code"] == NODE_INTERRUPTED, f"run {run_id}: {record['error']}"
                self._journal.count("runs that failed with NodeInterrupted")
            self._check_end(session, run_id, record)
            self._journal.count(f"runs {record['status']}")
            self._journal.count("runs resumed", record.get("attempts", 1) > 1)
        known = {event["invocationId"] for event in session.log}
        assert known <= session.runs.keys(), f"events of runs without a record: {known - session.runs.keys()}"

    def _check_end(self, session: StoredSession, run_id: str, record: Json) -> None:
        """A run that has succeeded has said its last words, once by each agent, and nothing after them."""
        events = [event for _, event in session.events_of(run_id)]
        if record["status"] != "succeeded" or session.key.app_name not in _SPEAKERS:
            return
        messages = [text_of(event) for event in events if event["author"] == "user" and text_of(event)]
        assert len(messages) == 1, f"run {run_id} has the messages {messages}"
        kind, number, amount = messages[0].split()
        said = [text_of(event) for event in events].count(last_words(number, int(amount)))
        wanted = _SPEAKERS[session.key.app_name]
        if kind == LONG_RUNNING and INTERRUPTED in _responses(events):
            wanted += 1  # about the call that was interrupted, and about its result
        assert said == wanted, f"run {run_id} said its last words {said} times, not {wanted}"
        assert not calls_of(events[-1]), f"run {run_id} ends with calls"

    def _check_seen(self, client: Client, run: SeenRun) -> None:
        session = self._session_of(run)
        if isinstance(client, Live):
            _check_events(session, run.seen, [(seq, event) for seq, event in enumerate(session.log, 1)], run.way)
            return
        assert run.id is not None, f"{run.message!r} has no run"
        of_run = session.events_of(run.id)
        early = [event for _, event in of_run if event["timestamp"] < run.not_before]
        assert not early, f"run {run.id} began before {run.not_before}: {early}"
        of_agents = [(seq, event) for seq, event in of_run if event["author"] != "user"]
        if run.way in ("sse", "background"):
            _check_events(session, run.seen, of_agents, f"run {run.id} by {run.way}")
        if run.events is not None:
            served = [event for _, event in of_agents if not is_internal(event)]
            assert run.events == served, f"/run of {run.id} answered {run.events}"
        if run.text is not None:
            separator = "\n\n" if run.way == "chat completion" else ""
            text = separator.join(text for _, event in of_agents if (text := text_of(event)))
            assert run.text == text, f"{run.way} of {run.id} read {run.text!r}, not {text!r}"
        if run.record is not None:
            assert run.record["status"] == session.runs[run.id]["status"], f"{run.record} is {session.runs[run.id]}"

    def _check_followed(self, client: Chat) -> None:
        session = self._stored.get(client.key)
        assert session is not None, "the session is not stored"
        _check_events(session, client.followed, list(enumerate(session.log, 1)), "the session's stream")
        seqs = [seq for seq, _ in client.followed]
        assert seqs == list(range(1, len(session.log) + 1)), f"the session's stream has {seqs}"

    def _check_ledger(self, session: StoredSession) -> None:
        made = {call["id"]: call["name"] for event in session.log for call in calls_of(event)}
        responses = _last_responses(session)
        by_call: dict[str, list[Json]] = defaultdict(list)
        for line in session.ledger:
            by_call[line["call"]].append(line)
        for call_id, lines in by_call.items():
            assert call_id in made or call_id.endswith("-book"), f"{call_id} ran, and is not in the log"
            assert len({line["key"] for line in lines}) == 1, f"{call_id} had several idempotency keys: {lines}"
            begun = sum(line["phase"] == "begin" for line in lines)
            if lines[0]["policy"] == "report":
                assert begun == 1, f"{call_id} must not be repeated, and ran {begun} times: {lines}"
            self._journal.count("calls of tools")
            self._journal.count("calls that were repeated", begun > 1)
        for call_id, name in made.items():
            if name == APPROVAL or call_id not in responses:
                continue
            lines = by_call.get(call_id, [])
            is_interrupted = responses[call_id] == INTERRUPTED
            self._journal.count("calls that were reported as interrupted", is_interrupted)
            if not is_interrupted and "error" not in responses[call_id]:
                ended = sum(line["phase"] == "end" for line in lines)
                assert ended or name in (LONG_RUNNING, *SLEEPS), f"{call_id} has a result, and has not ended: {lines}"
            if is_interrupted and name in _RETRIED:
                assert _was_cancelled(session, call_id), f"{call_id} may be repeated, and was not"


def _was_cancelled(session: StoredSession, call_id: str) -> bool:
    """True for a call of a cancelled run."""
    for event in session.log:
        if any(call["id"] == call_id for call in calls_of(event)):
            return session.runs[event["invocationId"]]["status"] == "cancelled"
    return False


def _responses(events: Iterable[Json]) -> list[Json]:
    return [response["response"] for event in events for response in responses_of(event)]


def _last_responses(session: StoredSession) -> dict[str, Json]:
    return {response["id"]: response["response"] for event in session.log for response in responses_of(event)}


def _last_responses_of(session: StoredSession, name: str) -> list[Json]:
    ids = [call["id"] for event in session.log for call in calls_of(event) if call["name"] == name]
    responses = _last_responses(session)
    return [responses[call_id] for call_id in ids if call_id in responses]


def _check_order(session: StoredSession) -> None:
    """The log has no gap, and no event twice."""
    numbers = session.first_seq, session.newest_seq, session.events_in_database, session.last_seq
    length = len(session.log)
    assert numbers == (1, length, length, length), f"first, newest, count, last: {numbers} of {length} events"
    ids = Counter(event["id"] for event in session.log)
    assert len(ids) == length, f"stored twice: {[one for one, count in ids.items() if count > 1]}"
    assert not any(event.get("partial") for event in session.log)


def _check_calls(session: StoredSession) -> None:
    """Each call is made once, and is answered once, after it was made; one that needs an approval is first answered
    with a request for it, unless it was interrupted before its tool could ask."""
    made: dict[str, str] = {}
    answers: Counter[str] = Counter()
    interrupted: set[str] = set()
    asked: set[str] = set()
    for event in session.log:
        for call in calls_of(event):
            if call["name"] == "adk_request_confirmation":
                asked.add(call["args"]["originalFunctionCall"]["id"])
            assert call["id"] not in made, f"the call {call['id']} is there twice"
            made[call["id"]] = call["name"]
        for response in responses_of(event):
            assert response["id"] in made, f"the answer to {response['id']} is not after its call"
            answers[response["id"]] += 1
            if response["response"] == INTERRUPTED:
                interrupted.add(response["id"])
    is_waiting = any(record["status"] == "waiting" for record in session.runs.values())
    for call_id, name in made.items():
        was_asked = call_id in asked or call_id not in interrupted
        wanted = 2 if name in _NEEDS_APPROVAL and was_asked else 1
        if is_waiting:
            wanted -= 1
        if name == LONG_RUNNING and call_id in interrupted:
            wanted += 1  # then a client answers it, too
        assert answers[call_id] == wanted, f"{name} {call_id} has {answers[call_id]} answers, not {wanted}"


def _check_state(session: StoredSession) -> None:
    check_state(session.log, session.state)


def _check_read_messages(session: StoredSession) -> None:
    """A record names the event of a message that another run has read, and that run."""
    for run_id, record in session.runs.items():
        if "readAtSeq" not in record:
            assert "steeredInto" not in record, f"run {run_id} was not read, and is {record}"
            continue
        event = session.log[record["readAtSeq"] - 1]
        found = event["author"], event["invocationId"], event["id"].endswith(run_id)
        assert found == ("user", record["steeredInto"], True), f"the message of run {run_id} is {event}"
        assert not session.events_of(run_id), f"the message of run {run_id} was read, and the run has events"


def _check_run_ids(session: StoredSession, runs: list[SeenRun]) -> None:
    """A client that names what it repeats has no other runs than those that it knows."""
    known = {run.id for run in runs}
    assert session.runs.keys() == known, f"the session has the runs {list(session.runs)}, its client {known}"


def _check_sleeps(client: Client, session: StoredSession) -> None:
    """No call that waits for a time is answered early; one that waits for a signal alone is answered with its value."""
    calls = {call["id"]: (event, call) for event in session.log for call in calls_of(event) if call["name"] in SLEEPS}
    for event in session.log:
        for response in responses_of(event):
            if response["id"] not in calls:
                continue
            asked, call = calls[response["id"]]
            seconds = call["args"].get("seconds", call["args"].get("timeout_seconds"))
            if seconds is None:
                assert response["response"] == {"value": client.name}, f"{call['id']} is answered with {response}"
            else:
                assert "time" in response["response"], f"{call['id']} is answered with {response}"
                slept = event["timestamp"] - asked["timestamp"]
                assert slept >= seconds, f"{call['id']} waits for {seconds} s, and is answered after {slept} s"


def _check_votes(client: Votes, session: StoredSession) -> None:
    """A call is made if it was approved, and only then."""
    (response,) = _last_responses_of(session, "remit")
    is_made = any(line["phase"] == "begin" for line in session.ledger)
    if not client.is_approved:
        assert not is_made, f"a refused call was made: {session.ledger}"
    elif response != INTERRUPTED:
        assert is_made, f"an approved call was not made: {response}"
        assert "remitted" in response, f"an approved call has {response}"


def _check_messages(client: Client, session: StoredSession, runs: list[SeenRun]) -> None:
    """Each message is stored once; one that could not be named more often, at most once for each try."""
    stored = Counter(text_of(event) for event in session.log if event["author"] == "user" and text_of(event))
    if isinstance(client, Live):
        assert all(count == 1 for count in stored.values()), f"{stored}"
        return
    limits: Counter[str] = Counter()
    for run in runs:
        limits[run.message] += run.requests
    limits.update(message for run in runs for message in run.lost_messages)
    for message, count in stored.items():
        assert count <= limits[message], f"{message!r} is there {count} times, and was sent {limits[message]} times"
    if isinstance(client, Steers):
        said = [message for message in stored if message.startswith("say ")]
        assert said == [run.message for run in runs if run.message.startswith("say ")], f"not in order: {said}"
    if session.key == runs[0].key:
        assert stored.keys() == limits.keys(), f"stored {list(stored)}, sent {list(limits)}"


def _check_events(
    session: StoredSession, seen: list[tuple[int, Json]], wanted: list[tuple[int, Json]], reader: str
) -> None:
    """A client has seen the stored events, each once, in their order, as they are stored."""
    seqs = [seq for seq, _ in seen]
    assert seqs == sorted(set(seqs)), f"{reader} has seen events twice or out of order: {seqs}"
    for seq, event in seen:
        assert seq <= len(session.log), f"{reader} has seen event {seq}, which is not stored: {event}"
        assert event == session.log[seq - 1], f"{reader} has seen event {seq} as {event}, not {session.log[seq - 1]}"
    missed = [seq for seq, event in wanted if seq not in set(seqs) and not is_internal(event)]
    assert not missed, f"{reader} has missed {missed}, and has seen {seqs}"
