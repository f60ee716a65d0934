"""Every record survives the wire, as we write it and as clients do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.content import Blob, Content, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.listings import AppInfo, ArtifactVersion, ListAppsResponse, MemoryEntry, SearchMemoryResponse
from greenroom.records.model_exchange import LiveRequest, LlmRequest, LlmResponse
from greenroom.records.run import AgentRunRequest, Run, RunConfig, RunStatus
from greenroom.records.session import ListEventsResponse, ListSessionsResponse, Session
from greenroom.records.tool_declaration import FunctionDeclaration, Schema, Tool
from tests.fuzz.extent import IS_LONG
from tests.records.strategies import as_python_clients_send, json_values, records

RECORDS: list[type[Any]] = [
    AgentRunRequest, AppInfo, ArtifactVersion, Content, Event, EventActions, FunctionDeclaration, GenerateContentConfig,
    ListAppsResponse, ListEventsResponse, ListSessionsResponse, LiveRequest, LlmRequest, LlmResponse, MemoryEntry, Part,
    Run, RunConfig, Schema, SearchMemoryResponse, Session, Tool,
]  # fmt: skip

calm = settings(
    deadline=None,
    max_examples=60 if IS_LONG else 15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def same(a: Any, b: Any) -> bool:
    """Sessions are equal only to themselves, so they are compared by what they hold."""
    if isinstance(a, Session):
        return all(same(getattr(a, name), getattr(b, name)) for name in Session.__struct_fields__)
    if isinstance(a, ListSessionsResponse):
        pairs = zip(a.sessions, b.sessions, strict=True)
        return a.next_page_token == b.next_page_token and all(same(x, y) for x, y in pairs)
    return a == b


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_is_written_can_be_read(record: type[Any]) -> None:
    decode = wire.decoder(record)

    @calm
    @given(records(record))
    def check(value: Any) -> None:
        data = wire.encode(value)
        assert same(decode(data), value)
        assert len(data.decode().splitlines()) <= 1

    check()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_client_may_send_back_what_it_got(record: type[Any]) -> None:
    decode = wire.client_decoder(record)

    @calm
    @given(records(record))
    def check(value: Any) -> None:
        assert same(decode(wire.encode(value)), value)
        assert same(wire.from_plain(wire.to_plain(value), record), value)

    check()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_python_clients_are_understood(record: type[Any]) -> None:
    decode = wire.client_decoder(record)

    @calm
    @given(records(record))
    def check(value: Any) -> None:
        assert same(decode(json.dumps(as_python_clients_send(value)).encode()), value)

    check()


@calm
@given(json_values)
def test_free_json_passes_unchanged(value: Any) -> None:
    event = Event(
        author="a", output=value, custom_metadata={"k": value}, actions=EventActions(state_delta={"k": value})
    )
    decoded = wire.decoder(Event)(wire.encode(event))
    assert decoded.actions.state_delta == {"k": value}
    assert decoded.custom_metadata == {"k": value}
    assert decoded.output == value
    assert wire.client_decoder(Event)(wire.encode(event)) == decoded


def refusal(record: type[Any], data: bytes) -> InvalidRequest | None:
    try:
        wire.client_decoder(record)(data)
    except InvalidRequest as error:
        return error
    return None


@calm
@given(st.binary(max_size=200), st.sampled_from(RECORDS))
def test_rubbish_is_refused_as_a_caller_error(data: bytes, record: type[Any]) -> None:
    error = refusal(record, data)
    assert error is None or error.location[0] == "body"


@calm
@given(json_values, st.sampled_from(RECORDS))
def test_other_json_is_refused_as_a_caller_error(value: Any, record: type[Any]) -> None:
    error = refusal(record, json.dumps(value).encode())
    assert error is None or error.location[0] == "body"


def test_an_event_always_has_what_adk_clients_require() -> None:
    event = wire.to_plain(Event(author="x"))
    assert set(event) == {"id", "invocationId", "author", "timestamp", "actions"}
    assert event["actions"] == {
        "stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {},
    }  # fmt: skip


def test_a_session_has_six_keys_whatever_is_empty() -> None:
    session = wire.to_plain(Session(id="", app_name="", user_id="", last_update_time=0.0))
    assert session == {"id": "", "appName": "", "userId": "", "state": {}, "events": [], "lastUpdateTime": 0.0}


def test_a_session_takes_any_iterable_of_events() -> None:
    event = Event(author="x")
    for events in ([event], (event,), iter([event])):
        session = Session(id="s", app_name="a", user_id="u", events=events)  # pyright: ignore[reportArgumentType]
        assert isinstance(session.events, CopyOnWriteList)
        assert session.events == [event]
    shared: CopyOnWriteList[Event] = CopyOnWriteList([event])
    assert Session(id="s", app_name="a", user_id="u", events=shared).events is shared


def test_new_records_share_no_maps() -> None:
    one = Event(author="x")
    other = Event(author="x")
    one.actions.state_delta["a"] = 1
    assert other.actions.state_delta == {}
    assert one.id != other.id


CALL = Content(parts=[Part.from_function_call(name="f", args={})])
RESPONSE = Content(parts=[Part.from_function_response(name="f", response={})])
CODE_RESULT = Content(parts=[Part.from_code_execution_result(outcome="OUTCOME_OK", output="1")])


@pytest.mark.parametrize(
    ("event", "is_final"),
    [
        (Event(author="a"), True),
        (Event(author="a", partial=True), False),
        (Event(author="a", content=Content(parts=[Part(text="x")])), True),
        (Event(author="a", content=CALL), False),
        (Event(author="a", content=RESPONSE), False),
        (Event(author="a", content=CALL, long_running_tool_ids=["x"]), True),
        (Event(author="a", partial=True, actions=EventActions(skip_summarization=True)), True),
        (Event(author="a", content=CODE_RESULT), False),
        (Event(author="a", content=RESPONSE, error_code="X"), True),
        (Event(author="a", error_code="X", partial=True), False),
    ],
)
def test_final_responses_are_distinguished_from_steps(event: Event, is_final: bool) -> None:
    assert event.is_final_response() is is_final


def test_the_text_of_a_content_leaves_out_thoughts() -> None:
    parts = [Part(text="a"), Part(text="b", thought=True), Part(inline_data=Blob(data=b"x")), Part(text="c")]
    assert Content(parts=parts).text() == "ac"
    assert Content().text() == ""


@pytest.mark.parametrize("status", list(RunStatus))
def test_a_run_is_over_unless_it_is_queued_or_running(status: RunStatus) -> None:
    assert status.is_over is (status.value not in ("queued", "running"))
