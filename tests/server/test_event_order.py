"""Events that a turn puts on the wire, their order and contents. Source of the table: ADK's servers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records import wire
from greenroom.records.content import FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.run_control import request_input
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.agents.human_input.approvals import REFUSED, WAITS
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.serving import Json, Serving, run_body

WAYS = ["/run", "/run_sse", "stream"]


async def turn(server: Serving, app: str, text: str | None, way: str = "/run", **more: Any) -> list[Json]:
    """The whole events of a run."""
    if way == "/run":
        reply = await server.run(app, text, **more)
        assert reply.status_code == 200, reply.text
        return reply.json()
    frames = await server.sse(app, text, streaming=way == "stream", **more)
    assert not any("error" in frame.data for frame in frames)
    return [frame.data for frame in frames if frame.id is not None]


def lines_of(events: list[Json]) -> list[tuple[str, str]]:
    """Authors and contents: a text, the name of a call as `name()`, of a response as `= name`."""
    lines: list[tuple[str, str]] = []
    for event in events:
        for part in event.get("content", {}).get("parts", [{"text": ""}]):
            call = part.get("functionCall")
            response = part.get("functionResponse")
            if call:
                text = f"{call['name']}()"
            elif response:
                text = f"= {response['name']}"
            else:
                text = part["text"]
            lines.append((event["author"], text))
    return lines


def the_call(event: Json) -> Json:
    (part,) = event["content"]["parts"]
    return part["functionCall"]


def the_response(event: Json) -> Json:
    (part,) = event["content"]["parts"]
    return part["functionResponse"]


def reply_to(call: Json, response: Json, event: Json) -> Json:
    """A run request as ADK's page sends it, less the session."""
    part = {"functionResponse": {"id": call["id"], "name": call["name"], "response": response}}
    return {
        "newMessage": {"role": "user", "parts": [part]}, "functionCallEventId": event["id"], "stateDelta": None,
    }  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_was_transferred_to_keeps_answering(serve: Serve, way: str) -> None:
    back = LlmAgent(name="back", model=ScriptedModel(["Back office here.", "Still here."]))
    front = scripted("front", [FunctionCall(name="transfer_to_agent", args={"agent_name": "back"})])
    front.sub_agents = [back]
    front.__post_init__()
    server = await serve(front)
    await server.new_session("front")
    events = await turn(server, "front", "billing", way)
    assert lines_of(events) == [
        ("front", "transfer_to_agent()"),
        ("front", "= transfer_to_agent"),
        ("back", "Back office here."),
    ]
    assert the_call(events[0])["args"] == {"agent_name": "back"}
    assert events[1]["actions"]["transferToAgent"] == "back"
    assert lines_of(await turn(server, "front", "and now?", way)) == [("back", "Still here.")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["sequential", "loop", "parallel"])
async def test_of_agents_made_of_others_only_the_others_are_heard(serve: Serve, kind: str, way: str) -> None:
    """ADK's clients take the last event for the answer. How far the agent got is in the session's log."""
    children = [scripted("p1", lambda _: "one"), scripted("p2", lambda _: "two")]
    made: dict[str, Any] = {
        "sequential": lambda: SequentialAgent(name="par", sub_agents=children),
        "loop": lambda: LoopAgent(name="par", sub_agents=children, max_iterations=2),
        "parallel": lambda: ParallelAgent(name="par", sub_agents=children),
    }
    root: BaseAgent = made[kind]()
    server = await serve(root)
    session = await server.new_session("par")
    events = await turn(server, "par", "go", way)
    heard = [("p1", "one"), ("p2", "two")] * (2 if kind == "loop" else 1)
    assert (sorted(lines_of(events)) if kind == "parallel" else lines_of(events)) == heard
    branches = {event["author"]: event.get("branch") for event in events}
    assert branches == ({"p1": "par.p1", "p2": "par.p2"} if kind == "parallel" else {"p1": None, "p2": None})
    log = (await server.client.get(session, params={"events": "all"})).json()["events"]
    assert [event for event in log if event["author"].startswith("p") and event["author"] != "par"] == events
    followed = (await server.client.get(f"/runs/{events[0]['invocationId']}/events")).json()["events"]
    assert followed == log
    assert any(event["actions"].get("endOfAgent") for event in log if event["author"] == "par")


async def test_what_branches_write_together_is_shown(serve: Serve) -> None:
    """An event that says how far an agent got is shown if it changes the state, too."""

    async def note(tool_context: ToolContext) -> str:
        """Note."""
        tool_context.state["notes"] = {tool_context.agent_name: 1}
        return "noted"

    def branch(name: str) -> LlmAgent:
        return scripted(name, [FunctionCall(name="note", args={}), "done"], tools=[note])

    par = ParallelAgent(name="par", sub_agents=[branch("p1"), branch("p2")], state_reducers={"notes": "merge"})
    server = await serve(par)
    session = await server.new_session("par")
    events = await turn(server, "par", "go")
    state: Json = {}
    for event in events:
        state.update(event["actions"]["stateDelta"])
    assert state == (await server.client.get(session)).json()["state"] == {"notes": {"p1": 1, "p2": 1}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", [5, "x", None, [1], True])
async def test_a_result_that_is_no_object_is_wrapped(serve: Serve, given: Any, way: str) -> None:
    def plain() -> Any:
        """Gives what it was made with."""
        return given

    server = await serve(scripted("host", [FunctionCall(name="plain", args={}), "done"], tools=[plain]))
    await server.new_session("host")
    _, response, _ = await turn(server, "host", "go", way)
    assert the_response(response)["response"] == {"result": given}


async def test_a_call_to_which_the_model_gave_no_id_has_one(serve: Serve) -> None:
    def plain() -> str:
        """Gives nothing."""
        return ""

    server = await serve(scripted("host", [FunctionCall(name="plain", args={}), "done"], tools=[plain]))
    await server.new_session("host")
    call, response, _ = await turn(server, "host", "go")
    made = the_call(call)["id"]
    assert re.fullmatch("adk-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made)
    assert the_response(response)["id"] == made


async def test_tools_never_run_from_a_piece_of_a_message(serve: Serve) -> None:
    ran: list[str] = []

    def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    call = FunctionCall(id="c1", name="note", args={"text": "x"})
    script = [[Part(text="let me see "), Part(function_call=call)], "done"]
    server = await serve(scripted("host", script, tools=[note]))
    session = await server.new_session("host")
    frames = await server.sse("host", "go", streaming=True)
    with_calls = [frame for frame in frames if "functionCall" in json.dumps(frame.data)]
    assert [frame.data.get("partial") for frame in with_calls] == [None]
    assert ran == ["x"]
    stored = (await server.client.get(session)).json()["events"]
    assert not any(event.get("partial") for event in stored)
    assert stored[1:] == [frame.data for frame in frames if frame.id is not None]


@pytest.mark.parametrize("way", WAYS)
async def test_usage_and_finish_reason_stand_in_the_whole_event(serve: Serve, way: str) -> None:
    from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata as Usage
    from greenroom.records.content import Content

    usage = Usage(prompt_token_count=7, candidates_token_count=3, total_token_count=10)
    content = Content(role="model", parts=[Part(text="a b")])
    said = LlmResponse(content=content, usage_metadata=usage, finish_reason="STOP", model_version="m-1")
    server = await serve(scripted("host", [said]))
    await server.new_session("host")
    (event,) = await turn(server, "host", "go", way)
    assert event["usageMetadata"] == {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
    assert (event["finishReason"], event["modelVersion"]) == ("STOP", "m-1")


ALL_FROM_A_MODEL: Json = {
    "turnComplete": True,
    "turnCompleteReason": "NEED_MORE_INPUT",
    "interrupted": False,
    "errorCode": "SAFETY",
    "errorMessage": "blocked",
    "finishReason": "STOP",
    "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7},
    "modelVersion": "m-1",
    "groundingMetadata": {"searchEntryPoint": {"renderedContent": "<b>x</b>"}},
    "citationMetadata": {"citations": [{"uri": "https://a"}]},
    "avgLogprobs": -0.5,
    "logprobsResult": {"chosenCandidates": []},
    "customMetadata": {"a": None},
    "cacheMetadata": {"fingerprint": "f"},
    "interactionId": "i",
    "interactionStatus": "completed",
    "environmentId": "v",
}
ONLY_LIVE = {
    "content", "partial", "input_transcription", "output_transcription", "live_session_resumption_update",
    "live_session_id", "go_away", "voice_activity",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_model_sends_beside_its_words_is_in_the_event(serve: Serve, way: str) -> None:
    said = wire.from_plain({**ALL_FROM_A_MODEL, "content": {"role": "model", "parts": [{"text": "a"}]}}, LlmResponse)
    assert {name for name in LlmResponse.__struct_fields__ if getattr(said, name) is None} == ONLY_LIVE - {"content"}
    server = await serve(scripted("host", [said]))
    session = await server.new_session("host")
    (event,) = await turn(server, "host", "go", way)
    assert {name: event.get(name) for name in ALL_FROM_A_MODEL} == ALL_FROM_A_MODEL
    assert (await server.client.get(session)).json()["events"][1] == event


# what waits for a person


@pytest.mark.parametrize("way", WAYS)
async def test_a_long_running_call_is_announced_and_answered_later(serve: Serve, way: str) -> None:
    async def ask_manager(what: str) -> dict[str, str]:
        """Ask."""
        return {"status": "pending"}

    call = FunctionCall(id="c1", name="ask_manager", args={"what": "x"})
    script = [call, "I have asked.", "It was approved."]
    server = await serve(scripted("host", script, tools=[LongRunningFunctionTool(ask_manager)]))
    await server.new_session("host")
    events = await turn(server, "host", "may I?", way)
    assert lines_of(events) == [("host", "ask_manager()"), ("host", "= ask_manager"), ("host", "I have asked.")]
    asked, interim, _ = events
    assert asked["longRunningToolIds"] == ["c1"]
    assert the_response(interim) == {"id": "c1", "name": "ask_manager", "response": {"status": "pending"}}
    assert interim["content"]["role"] == "user"
    answer = reply_to(the_call(asked), {"status": "approved"}, asked)
    after = await turn(server, "host", None, way, **answer)
    assert lines_of(after) == [("host", "It was approved.")]
    assert {event["invocationId"] for event in after} == {asked["invocationId"]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answer", ["yes", "as text", "no"])
async def test_a_confirmation_is_asked_for_in_three_events(serve: Serve, answer: str, way: str) -> None:
    paid: list[int] = []

    def pay(amount: int) -> dict[str, int]:
        """Pays an amount."""
        paid.append(amount)
        return {"paid": amount}

    call = FunctionCall(id="adk-1", name="pay", args={"amount": 5})
    agent = scripted("bank", [call, "So be it."], tools=[FunctionTool(pay, require_confirmation=True)])
    server = await serve(agent)
    await server.new_session("bank")
    events = await turn(server, "bank", "pay 5", way)
    first, asking, refused = events
    assert the_call(first) == {"id": "adk-1", "name": "pay", "args": {"amount": 5}}
    assert not first.get("longRunningToolIds")
    request = the_call(asking)
    confirmation = request["args"]["toolConfirmation"]
    assert request["id"] != "adk-1"
    assert request == {
        "id": request["id"],
        "name": "adk_request_confirmation",
        "args": {
            "originalFunctionCall": {"id": "adk-1", "name": "pay", "args": {"amount": 5}},
            "toolConfirmation": {"hint": confirmation["hint"], "confirmed": False},
        },
    }
    assert confirmation["hint"]
    assert (asking["author"], asking["content"]["role"]) == ("bank", "model")
    assert asking["longRunningToolIds"] == [request["id"]]
    assert the_response(refused) == {"id": "adk-1", "name": "pay", "response": WAITS}
    assert (refused["author"], refused["content"]["role"]) == ("bank", "user")
    assert refused["actions"]["skipSummarization"] is True
    assert refused["actions"]["requestedToolConfirmations"] == {"adk-1": confirmation}
    assert paid == []

    said: dict[str, Json] = {
        "yes": {"confirmed": True, "payload": {"amount": 5}},
        "as text": {"response": '{"confirmed": true}'},
        "no": {"confirmed": False},
    }
    after = await turn(server, "bank", None, way, **reply_to(request, said[answer], asking))
    response, last = after
    assert the_response(response) == {
        "id": "adk-1", "name": "pay", "response": REFUSED if answer == "no" else {"paid": 5},
    }  # fmt: skip
    assert lines_of([last]) == [("bank", "So be it.")]
    assert {event["invocationId"] for event in after} == {first["invocationId"]}
    assert paid == ([] if answer == "no" else [5])


@pytest.mark.parametrize("way", WAYS)
async def test_input_is_asked_for_under_the_name_that_clients_know(serve: Serve, way: str) -> None:
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
    asking = FunctionCall(id="i-1", name="adk_request_input", args={"message": "Which?", "response_schema": schema})

    def answer(request: LlmRequest) -> Any:
        response = (request.contents[-1].parts or [Part()])[0].function_response
        return asking if response is None else f"{response.response} it is"

    server = await serve(scripted("host", answer, tools=[request_input]))
    await server.new_session("host")
    (asked,) = await turn(server, "host", "paint it", way)
    assert asked["longRunningToolIds"] == ["i-1"]
    assert the_call(asked)["args"] == {"message": "Which?", "response_schema": schema}
    after = await turn(server, "host", None, way, **reply_to(the_call(asked), {"colour": "blue"}, asked))
    assert lines_of(after) == [("host", "{'colour': 'blue'} it is")]
    assert after[0]["invocationId"] == asked["invocationId"]


# what a request says of its run


@pytest.mark.parametrize("spelled", ["serviceTier", "service_tier"])
async def test_a_service_tier_reaches_the_model(serve: Serve, spelled: str) -> None:
    agent = echo()
    server = await serve(agent)
    await server.new_session("echo")
    tier: Json = {spelled: "flex"}
    await server.run("echo", **tier)
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.requests[-1].config.service_tier == "flex"


async def test_a_message_without_a_role_is_the_users(server: Serving) -> None:
    session = await server.new_session("echo")
    body = run_body("echo", None, newMessage={"parts": [{"text": "hi"}]})
    assert (await server.client.post("/run", json=body)).status_code == 200
    user, _ = (await server.client.get(session)).json()["events"]
    assert (user["author"], user["content"]["role"]) == ("user", "user")


@pytest.mark.parametrize("way", WAYS)
async def test_metadata_is_on_every_event_but_for_the_names_that_adk_keeps_for_itself(serve: Serve, way: str) -> None:
    server = await serve(echo())
    session = await server.new_session("echo")
    for metadata, kept in (({"a": 1, "__adk_internal_b": 2}, {"a": 1}), ({"__adk_internal_b": 2}, None)):
        (event,) = await turn(server, "echo", "hi", way, customMetadata=metadata)
        assert event.get("customMetadata") == kept
    assert "__adk_internal_" not in (await server.client.get(session)).text
    given = [{"author": "echo", "customMetadata": {"a": 1, "__adk_internal_b": 2}}]
    imported = await server.client.post("/apps/echo/users/ann/sessions", json={"events": given})
    assert imported.json()["events"][0]["customMetadata"] == {"a": 1}


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_is_named_is_gone_on_with(serve: Serve, way: str) -> None:
    server = await serve(scripted("host", ["one", "two"]))
    await server.new_session("host")
    (first,) = await turn(server, "host", "go", way)
    (second,) = await turn(server, "host", "on", way, invocationId=first["invocationId"])
    assert second["invocationId"] == first["invocationId"]
    assert lines_of([first, second]) == [("host", "one"), ("host", "two")]
