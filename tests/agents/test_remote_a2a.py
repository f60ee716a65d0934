"""RemoteA2aAgent against the A2A SDK's own server."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import TaskState
from google.protobuf.json_format import MessageToDict
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

import greenroom
from greenroom.a2a.parts import from_a2a_part
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.remote_a2a.agent import RemoteA2aAgent
from greenroom.agents.workflows import LoopAgent, SequentialAgent
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.a2a_peer import URL, Peer, card
from tests.agents.talk import STREAMED, Talk, answer, call


def remote(peer: Peer, **options: Any) -> RemoteA2aAgent:
    return RemoteA2aAgent("desk", options.pop("agent_card", peer.card), httpx_client=peer.http, **options)


def texts(events: list[Event]) -> list[str]:
    return [event.content.text() for event in events if event.content is not None and not event.partial]


@pytest.mark.parametrize(("binding", "version"), [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_task_is_answered_whole(binding: str, streaming: bool, version: str) -> None:
    talk = Talk(remote(Peer(card(binding, streaming=streaming, version=version))))
    events = await talk.say("hello")
    assert texts(events) == ["You said: hello"]
    metadata = events[-1].custom_metadata or {}
    assert metadata["a2a:response"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert {"a2a:task_id", "a2a:context_id"} <= metadata.keys()


async def test_grpc_over_a_real_port() -> None:
    import grpc
    from a2a.server.request_handlers import GrpcHandler
    from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server

    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    peer = Peer(card("GRPC", url=f"127.0.0.1:{port}"))
    add_A2AServiceServicer_to_server(GrpcHandler(peer.handler), server)
    await server.start()
    try:
        assert texts(await Talk(remote(peer)).say("hello")) == ["You said: hello"]
    finally:
        await server.stop(None)


async def test_chunks_are_partial_events_and_one_whole_event_follows() -> None:
    events = await Talk(remote(Peer())).say("hello", run_config=STREAMED)
    partial = [event for event in events if event.partial]
    assert [event.content.text() for event in partial if event.content] == ["", "You ", "said: ", "hello"]
    thought = partial[0].content and partial[0].content.parts
    assert thought
    assert (thought[0].text, thought[0].thought) == ("thinking", True)
    assert texts(events) == ["You said: hello"]
    assert partial[1].id == events[-1].id


async def test_a_message_in_place_of_a_task() -> None:
    talk = Talk(remote(peer := Peer()))
    assert texts(await talk.say("message")) == ["just a message"]
    await talk.say("message")
    assert peer.agent.received[1].context_id == peer.agent.received[0].context_id != ""


async def test_the_second_turn_sends_what_is_new_in_the_same_context() -> None:
    talk = Talk(remote(peer := Peer()))
    await talk.say("one")
    assert texts(await talk.say("two")) == ["You said: two"]
    first, second = peer.agent.received
    assert [part.text for part in second.parts] == ["two"]
    assert second.parts[0].metadata["is_user_input"] is True
    assert second.context_id == first.context_id != ""
    assert first.message_id != second.message_id


@pytest.mark.parametrize(("forward", "length"), [(True, None), ("namespaced", 64)])
async def test_the_session_can_name_the_context(forward: Any, length: int | None) -> None:
    config = greenroom.A2aRemoteAgentConfig(forward_session_id_as_context_id=forward)
    await Talk(remote(peer := Peer(), config=config)).say("one")
    context_id = peer.agent.received[0].context_id
    assert context_id == "s-1" if length is None else len(context_id) == length


async def test_other_agents_are_quoted_and_thoughts_left_out() -> None:
    parts = [greenroom.types.Part(text="hmm", thought=True), greenroom.types.Part(text="I pass.")]
    first = LlmAgent(name="first", model=ScriptedModel([parts]))
    await Talk(SequentialAgent(name="flow", sub_agents=[first, remote(peer := Peer())])).say("hello")
    sent = peer.agent.received[0].parts
    assert sent[0].text == "hello"
    assert sent[-1].text == "[first] said: <quoted>I pass.</quoted>"
    assert "is_user_input" not in sent[-1].metadata


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (greenroom.AggregationMode.AS_IS, ["hello", "add", {"result": 3}, "I pass."]),
        (greenroom.AggregationMode.EXTERNAL_HANDOFF, ["hello", 'add response: {"result":3}', "I pass."]),
    ],
)
async def test_the_session_is_sent_as_the_mode_says(mode: greenroom.AggregationMode, expected: list[Any]) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    first = LlmAgent(name="first", model=ScriptedModel([call("add", a=1, b=2), "I pass."]), tools=[add])
    second = remote(peer := Peer(), config=greenroom.A2aRemoteAgentConfig(aggregation_mode=mode))
    await Talk(SequentialAgent(name="flow", sub_agents=[first, second])).say("hello")
    parts = [from_a2a_part(part) for part in peer.agent.received[0].parts]
    shown: list[Any] = []
    for part in parts:
        assert part is not None
        if part.function_call is not None:
            shown.append(part.function_call.name)
        elif part.function_response is not None:
            shown.append(part.function_response.response)
        else:
            shown.append(part.text)
    assert shown == expected


async def test_a_question_is_a_long_running_call_and_its_answer_continues_the_task() -> None:
    talk = Talk(remote(peer := Peer()))
    [*_, asked] = await talk.say("ask me")
    [call] = asked.get_function_calls()
    assert (call.name, call.args) == ("mock_function_call_for_required_user_input", {"input_required": "Which day?"})
    assert asked.long_running_tool_ids == [call.id]
    events = await talk.say(answer(call.name or "", call.id, {"result": "Monday"}))
    assert texts(events) == ["You said: Monday"]
    first, second = peer.agent.received
    assert [part.text for part in second.parts] == ["Monday"]
    assert second.task_id == (asked.custom_metadata or {})["a2a:task_id"]
    assert second.context_id == first.context_id


async def test_a_paused_task_takes_the_next_message_too() -> None:
    talk = Talk(remote(peer := Peer()))
    [*_, asked] = await talk.say("ask me")
    assert texts(await talk.say("Tuesday")) == ["You said: Tuesday"]
    assert peer.agent.received[1].task_id == (asked.custom_metadata or {})["a2a:task_id"]


async def test_a_login_is_asked_for() -> None:
    [*_, asked] = await Talk(remote(Peer())).say("log in")
    [call] = asked.get_function_calls()
    assert (call.name, call.args) == ("mock_function_call_for_required_user_auth", {"auth_required": "Please log in."})


async def test_an_approval_of_the_remote_framework_is_no_approval_of_ours() -> None:
    """Its request keeps its arguments, but has a name and an id that can't release a call of this server."""
    talk = Talk(remote(peer := Peer()))
    [*_, asked] = await talk.say("confirm")
    [call] = asked.get_function_calls()
    assert call.name == "mock_function_call_for_required_user_input"
    assert call.args == {"toolConfirmation": {"hint": "Pay 5?"}}
    assert call.id != "r-1"
    await talk.say(answer(call.name or "", call.id, {"confirmed": True}))
    [part] = peer.agent.received[1].parts
    assert part.metadata["adk_type"] == "function_response"
    sent = MessageToDict(part.data)
    assert (sent["id"], sent["name"], sent["response"]) == (
        "r-1",
        "adk_request_confirmation",
        {"confirmed": True},
    )


def check_error(event: Event, message: str, *, code: str = "A2AClientError") -> None:
    assert (event.error_code, event.content) == (code, None)
    assert re.search(message, event.error_message or ""), event.error_message


async def test_a_failed_task_fails_the_run() -> None:
    talk = Talk(remote(Peer()))
    *_, end = await talk.say("fail")
    check_error(end, "failed: no table left")
    assert "no table left" in (end.custom_metadata or {})["a2a:error"]
    assert (end.custom_metadata or {})["a2a:request"]["parts"]
    assert texts(await talk.say("hello")) == ["You said: hello"]  # of another task


async def test_only_harmless_actions_of_the_remote_count() -> None:
    loop = LoopAgent(name="loop", sub_agents=[remote(peer := Peer())], max_iterations=3)
    talk = Talk(loop)
    await talk.say("escalate")
    assert len(peer.agent.received) == 1
    assert await talk.state() == {}


async def test_files_and_data_arrive_as_parts() -> None:
    [*_, event] = await Talk(remote(Peer())).say("file")
    picture, data = (event.content and event.content.parts) or []
    assert picture.inline_data
    assert (picture.inline_data.data, picture.inline_data.mime_type) == (b"\x89PNG", "image/png")
    assert picture.inline_data.display_name == "plan.png"
    assert data.inline_data
    assert data.inline_data.data == b'<a2a_datapart_json>{"seats":4}</a2a_datapart_json>'


# streams that are cut


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_cut_stream_is_no_end(cleanly: bool) -> None:
    peer = Peer()
    transport: Any = peer.http._transport
    transport._inner.cut_after, transport._inner.cut_cleanly = 3, cleanly
    talk = Talk(remote(peer))
    turn = asyncio.create_task(talk.say("wait"))
    await peer.agent.begun.wait()
    await until(lambda: len(peer.requests) >= 3)  # the message, the task, the stream again
    peer.agent.go.set()
    assert texts(await turn) == ["half done"]
    assert [json.loads(request.content)["method"] for request in peer.requests][:3] == [
        "SendStreamingMessage", "GetTask", "SubscribeToTask",
    ]  # fmt: skip
    assert len(peer.agent.received) == 1


async def test_a_task_is_read_again_where_the_server_does_not_stream() -> None:
    peer = Peer(card(streaming=False))
    turn = asyncio.create_task(Talk(remote(peer)).say("wait"))
    await peer.agent.begun.wait()
    peer.agent.go.set()
    assert texts(await turn) == ["half done"]
    methods = [json.loads(request.content)["method"] for request in peer.requests]
    assert methods[0] == "SendMessage"
    assert set(methods[1:]) == {"GetTask"}


async def test_a_task_that_the_server_has_lost_is_an_error() -> None:
    peer = Peer()
    transport: Any = peer.http._transport
    transport._inner.cut_after = 3
    turn = asyncio.create_task(Talk(remote(peer)).say("wait"))
    await peer.agent.begun.wait()
    transport._inner._app = Peer().app  # restarted, without a memory
    check_error((await turn)[-1], "can't be read")
    peer.agent.go.set()


async def test_a_silent_server_is_an_error_after_the_timeout() -> None:
    peer = Peer()
    check_error((await Talk(remote(peer, timeout=0.2)).say("wait"))[-1], "has not changed for 0.2 s")
    assert peer.agent.cancelled


async def test_a_server_that_can_not_be_reached_is_an_error() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as http:
        desk = RemoteA2aAgent("desk", card(), httpx_client=http)
        check_error((await Talk(desk).say("hello"))[-1], r"A2A request failed: .*refused")

        after = LlmAgent(name="after", model=ScriptedModel(["I answer for the desk."]))
        events = await Talk(SequentialAgent(name="both", sub_agents=[desk, after])).say("hello")
        assert [event.author for event in events if event.author != "both"] == ["desk", "after"], (
            "as in ADK, the next agent runs"
        )

        desk = RemoteA2aAgent("desk", card(), httpx_client=http)
        model = ScriptedModel([FunctionCall(name="desk", args={"request": "hello"}), "The desk is closed."])
        events = await Talk(LlmAgent(name="a", model=model, tools=[AgentTool(desk)])).say("hello")
        [response] = [response for event in events for response in event.get_function_responses()]
        assert "refused" in (response.response or {})["error"]


async def test_a_stopped_run_cancels_the_task() -> None:
    peer = Peer()
    talk = Talk(remote(peer))
    turn = asyncio.create_task(talk.say("wait"))
    await peer.agent.begun.wait()
    await until_logged(talk)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    [task_id] = peer.agent.cancelled
    found: Any = await peer.handler.task_store.get(task_id, _anybody())
    assert found is not None
    assert found.status.state == TaskState.TASK_STATE_CANCELED


# cards


async def test_a_card_is_fetched_once_and_describes_the_agent() -> None:
    peer = Peer()
    agent = remote(peer, agent_card=URL)
    talk = Talk(agent)
    await talk.say("one")
    await talk.say("two")
    paths = [request.url.path for request in peer.requests]
    assert paths == ["/.well-known/agent-card.json", "/", "/"]
    assert agent.description == "<quoted>Books tables.</quoted>"


async def test_a_card_from_a_file_or_a_map(tmp_path: Path) -> None:
    plain = {
        "name": "peer", "description": "Books tables.", "url": URL, "protocolVersion": "0.3.0", "version": "1",
        "capabilities": {"streaming": True}, "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    }  # fmt: skip
    (tmp_path / "card.json").write_text(json.dumps(plain))
    for source in (str(tmp_path / "card.json"), plain):
        agent = remote(Peer(), agent_card=source)
        assert texts(await Talk(agent).say("hello")) == ["You said: hello"]
        assert agent.description == "Books tables."


OLD_CARD: dict[str, Any] = {
    "name": "peer", "description": "Books tables.", "url": URL, "version": "1", "capabilities": {"streaming": True},
    "defaultInputModes": ["text"], "defaultOutputModes": ["text"], "skills": [],
}  # fmt: skip


def without_card(peer: Peer) -> list[BaseRoute]:
    return [one for one in peer.app.router.routes if not (isinstance(one, Route) and "card" in one.path)]


@pytest.mark.parametrize("version", ["0.2", "0.2.0", "0.2.6", "0.3.0", None])
@pytest.mark.parametrize("source", ["map", "object", "well-known", "old path"])
async def test_a_card_of_an_older_version(source: str, version: str | None) -> None:
    plain = {**OLD_CARD, **({"protocolVersion": version} if version else {})}
    peer = Peer()

    async def served(request: Any) -> JSONResponse:
        return JSONResponse(plain)

    if source in ("well-known", "old path"):
        path = "/.well-known/agent.json" if source == "old path" else "/.well-known/agent-card.json"
        peer.app.router.routes[:] = [Route(path, served), *without_card(peer)]
    given = {"map": dict(plain), "object": parse_agent_card(dict(plain))}.get(source, URL)
    assert texts(await Talk(remote(peer, agent_card=given)).say("hello")) == ["You said: hello"]


@pytest.mark.parametrize("version", ["0.1", "0.1.9"])
async def test_a_card_of_a_version_that_is_too_old_is_refused_by_its_name(version: str) -> None:
    agent = remote(Peer(), agent_card={**OLD_CARD, "protocolVersion": version})
    [end] = await Talk(agent).say("hello")
    check_error(end, rf"JSONRPC {version};.*from version 0\.2 on")


async def test_a_server_without_a_card_is_named_once() -> None:
    peer = Peer()
    peer.app.router.routes[:] = without_card(peer)
    [end] = await Talk(remote(peer, agent_card=URL)).say("hello")
    check_error(end, r"agent-card\.json.*404", code="AgentCardResolutionError")


@pytest.mark.parametrize(
    ("source", "served", "reason"),
    [
        ("http://peer.example", card(), "must be an https URL"),
        (URL, card(url="https://elsewhere.example"), "of another origin"),
        (URL, card(url="http://localhost:7001"), "of another origin"),
        (URL, card(url="http://10.0.0.1/"), "must be an https URL"),
        (f"{URL}/none.json", card(), "HTTP 307"),
        ("/nowhere/card.json", card(), "No such file"),
    ],
)
async def test_a_card_that_can_not_be_used(source: str, served: Any, reason: str) -> None:
    talk = Talk(remote(Peer(served), agent_card=source))
    [end] = await talk.say("hello")
    check_error(end, reason, code="AgentCardResolutionError")


@pytest.mark.parametrize(
    ("given", "error"), [(None, ValueError), ("", ValueError), (5, TypeError), ({"name": 5}, ValueError)]
)
def test_no_card(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="agent_card"):
        RemoteA2aAgent("desk", given)


# credentials and hooks


async def test_a_user_is_asked_for_a_key_and_it_is_sent_with_card_and_messages() -> None:
    peer = Peer()
    scheme = {"type": "apiKey", "in": "header", "name": "X-Key"}
    talk = Talk(remote(peer, agent_card=URL, auth_scheme=greenroom.AuthScheme(**_plain(scheme))))
    [asked] = await talk.say("hello")
    [call] = asked.get_function_calls()
    assert call.name == "adk_request_credential"
    assert not peer.requests
    granted = {"authType": "apiKey", "apiKey": "secret"}
    events = await talk.say(answer("adk_request_credential", call.id, granted))
    assert texts(events) == ["You said: hello"]
    assert [request.headers.get("x-key") for request in peer.requests] == ["secret", "secret"]
    assert "secret" not in str(await talk.log())


async def test_interceptors_may_change_or_replace_the_request_and_drop_events() -> None:
    peer = Peer()
    seen: list[Any] = []

    async def before(ctx: Any, message: Any, parameters: Any) -> Any:
        if message.parts[0].text == "stop":
            return Event(author="desk", content=greenroom.types.ModelContent("stopped")), parameters
        message.parts[0].text = "changed"
        parameters.request_metadata = {"trace": "t-1"}
        return message, parameters

    async def after(ctx: Any, response: Any, event: Event) -> Event | None:
        seen.append(type(response).__name__)
        return event if event.content is not None else None

    hooks = greenroom.RequestInterceptor(before_request=before, after_request=after)
    talk = Talk(remote(peer, config=greenroom.A2aRemoteAgentConfig(request_interceptors=[hooks])))
    assert texts(await talk.say("hello")) == ["You said: changed"]
    assert seen == ["Task", "TaskStatusUpdateEvent"]
    assert json.loads(peer.requests[0].content)["params"]["metadata"] == {"trace": "t-1"}
    assert texts(await talk.say("stop")) == ["stopped"]
    assert len(peer.agent.received) == 1


async def test_a_converter_replaces_the_conversion_of_its_kind() -> None:
    def convert(update: Any, author: str, ctx: Any, part_converter: Any) -> Event:
        return Event(
            author=author,
            invocation_id=ctx.invocation_id,
            content=greenroom.types.ModelContent(update.artifact.name or "?"),
        )

    config = greenroom.A2aRemoteAgentConfig(a2a_artifact_update_converter=convert)
    events = await Talk(remote(Peer(), config=config)).say("hello")
    assert texts(events)[:3] == ["?", "?", "?"]


async def test_the_newer_integration_is_named_in_the_headers() -> None:
    await Talk(remote(peer := Peer(), use_legacy=False)).say("hello")
    assert peer.requests[0].headers["A2A-Extensions"] == "https://google.github.io/adk-docs/a2a/a2a-extension/"


def test_yaml(tmp_path: Path) -> None:
    from greenroom.apps.load_directory import DirectoryAppLoader

    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "root_agent.yaml").write_text(
        "agent_class: RemoteA2aAgent\nname: desk\nagent_card: https://peer.example\ntimeout: 5\n"
        "full_history_when_stateless: true\n"
    )
    agent = DirectoryAppLoader(tmp_path).load("desk").root_agent
    assert isinstance(agent, RemoteA2aAgent)
    assert (agent._source, agent._seconds, agent._sends_all) == ("https://peer.example", 5, True)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


async def until_logged(talk: Talk) -> None:
    async with asyncio.timeout(10):
        while not any(event.author == "desk" for event in await talk.log()):
            await asyncio.sleep(0.01)


def _anybody() -> Any:
    from a2a.server.context import ServerCallContext

    return ServerCallContext()


def _plain(scheme: dict[str, str]) -> dict[str, Any]:
    return {"in_" if key == "in" else key: value for key, value in scheme.items()}
