"""ADK's web UI, request by request: what it sends, in its order, and what it needs of the answers.

Source: the flows that were read off the UI's requests.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import ActivityEnd, Blob, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing import Hears, Says, ScriptedLiveModel
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.server.conftest import Serve
from tests.server.live_client import talking
from tests.server.serving import Frame, Json, Serving, frames_of, until

USER = "user"
DEV = "/dev/apps/desk"
SESSIONS = f"/apps/desk/users/{USER}/sessions"


async def note(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Write a note down."""
    name = "my notes.md"
    version = await tool_context.save_artifact(name, Part(inline_data=Blob(data=text.encode(), mime_type="text/plain")))
    tool_context.state["notes"] = tool_context.state.get("notes", 0) + 1
    return {"version": version}


def answer(request: LlmRequest) -> Any:
    last = request.contents[-1]
    if any(part.function_response for part in last.parts or ()):
        return "It is written down."
    if any(part.inline_data for part in last.parts or ()):
        return "A fine file."
    text = last.text()
    return FunctionCall(id=f"c-{len(request.contents)}", name="note", args={"text": text}) if "note" in text else text


def desk() -> LlmAgent:
    return LlmAgent(name="desk", model=ScriptedModel(answer), tools=[note])


async def get(server: Serving, path: str) -> Any:
    reply = await server.client.get(path)
    assert reply.status_code == 200, (path, reply.text)
    return reply.json()


async def say(server: Serving, session_id: str, *parts: Json, streaming: bool = False, **more: Any) -> list[Frame]:
    body = {
        "appName": "desk", "userId": USER, "sessionId": session_id, "newMessage": {"role": "user", "parts": list(parts)},
        "streaming": streaming, "stateDelta": None, **more,
    }  # fmt: skip
    reply = await server.client.post("/run_sse", json=body, headers={"accept": "text/event-stream"})
    assert reply.status_code == 200, reply.text
    frames = frames_of(reply.content)
    for frame in frames:
        assert "error" not in frame.data
        assert {"id", "timestamp", "author", "invocationId", "actions"} <= frame.data.keys()
    trace = await get(server, f"{DEV}/debug/trace/session/{session_id}")
    assert {frames[-1].data["invocationId"]} <= {
        span["attributes"].get("gcp.vertex.agent.invocation_id") for span in trace
    }
    return frames


async def new_conversation(server: Serving, name: str) -> Json:
    metadata = {"__session_metadata__": {"displayName": name[:50]}}
    reply = await server.client.post(SESSIONS, json={"state": metadata})
    assert reply.status_code == 200
    session: Json = reply.json()
    assert session["state"] == metadata
    assert session["events"] == []
    return session


async def test_the_page_loads_and_chooses_the_only_app(serve: Serve) -> None:
    server = await serve(desk())
    home = await server.client.get("/", follow_redirects=False)
    assert home.status_code in (302, 307)
    assert home.headers["location"].startswith("/dev-ui")
    page = await server.client.get(home.headers["location"], follow_redirects=True)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    config = await get(server, "/dev-ui/assets/config/runtime-config.json")
    assert (config["backendUrl"], config["telemetry"]) == ("", False)  # else it asks for consent before anything else
    assert await get(server, "/list-apps?relative_path=./") == ["desk"]
    version = await get(server, "/version")
    assert set(version) == {"version", "language", "language_version"}
    assert all(isinstance(text, str) for text in version.values())
    assert await get(server, "/config/telemetry") == {"telemetry": False}

    assert isinstance(await get(server, f"{DEV}/build_graph"), dict)
    for dark in ("false", "true"):
        image = await get(server, f"{DEV}/build_graph_image?dark_mode={dark}")
        assert "digraph" in image[""]["dotSrc"]
    editor = await server.client.get(f"{DEV}/builder?ts={int(time.time() * 1000)}")
    assert (editor.status_code, editor.text) == (200, "")
    assert await get(server, f"{DEV}/eval_sets") == []
    assert await get(server, f"{DEV}/eval_results") == []
    assert await get(server, SESSIONS) == []


async def test_a_conversation_from_the_first_message_to_its_deletion(serve: Serve) -> None:
    server = await serve(desk())
    text = "Please note that the heating in the second office is broken again"
    session = await new_conversation(server, text)
    path = f"{SESSIONS}/{session['id']}"

    frames = await say(server, session["id"], {"text": text})
    with_content = [frame.data for frame in frames if "content" in frame.data]  # artifacts come in frames of their own
    assert [next(iter(part)) for data in with_content for part in data["content"]["parts"]] == [
        "functionCall", "functionResponse", "text",
    ]  # fmt: skip
    call, response, last = with_content
    assert (
        call["content"]["parts"][0]["functionCall"]["id"] == response["content"]["parts"][0]["functionResponse"]["id"]
    )
    assert last["content"]["parts"][0]["text"] == "It is written down."

    streamed = await say(server, session["id"], {"text": "hello you there"}, streaming=True)
    assert [frame.data.get("partial") for frame in streamed][-1] is None
    assert "".join(frame.text for frame in streamed[:-1]) == streamed[-1].text == "hello you there"

    file = {"displayName": "n.md", "data": base64.b64encode(b"\xfb\xff# hi").decode(), "mimeType": "text/markdown"}
    assert (await say(server, session["id"], {"inlineData": file}))[-1].text == "A fine file."

    # the artifacts tab asks for what the events name, its name as it is
    (delta,) = (frame.data["actions"]["artifactDelta"] for frame in frames if frame.data["actions"]["artifactDelta"])
    assert delta == {"my notes.md": 0}
    part = await get(server, f"{path}/artifacts/my notes.md/versions/0")
    assert base64.b64decode(part["inlineData"]["data"]).decode() == text

    # the state tab adds up what the events say, and sends the whole as the delta of the next run
    stored = await get(server, path)
    state = dict(session["state"])
    for event in stored["events"]:
        state.update(event["actions"].get("stateDelta") or {})
    assert state == stored["state"]
    edited = {**state, "notes": 7, "floor": "second"}
    await say(server, session["id"], {"text": "thanks"}, stateDelta=edited)
    assert (await get(server, path))["state"] == edited

    # the event detail shows the graph with the event's path
    shown = next(frame.data["id"] for frame in frames)
    graph = await get(server, f"/dev{path}/events/{shown}/graph")
    assert "digraph" in graph["dotSrc"]
    spans = await get(server, f"{DEV}/debug/trace/session/{session['id']}")
    asked = next(span for span in spans if span["attributes"].get("gcp.vertex.agent.event_id") == shown)
    assert text in json.loads(asked["attributes"]["gcp.vertex.agent.llm_request"])["contents"][0]["parts"][0]["text"]

    # the drawer, a new name, and back to it
    named = {"stateDelta": {"__session_metadata__": {"displayName": "Heating"}}}
    assert (await server.client.patch(path, json=named)).status_code == 200
    (listed,) = await get(server, SESSIONS)
    assert listed["id"] == session["id"]
    assert listed["lastUpdateTime"] >= stored["lastUpdateTime"]
    resumed = await get(server, path)
    assert resumed["events"]
    assert resumed["state"]["__session_metadata__"] == {"displayName": "Heating"}

    # out as a file, and in again as another conversation
    events = [{**event, "timestamp": time.time()} for event in resumed["events"]]
    imported = await server.client.post(SESSIONS, json={"events": events, "state": resumed["state"]})
    assert imported.status_code == 200, imported.text
    copy = imported.json()
    assert copy["id"] != session["id"]
    assert [event["id"] for event in copy["events"]] == [event["id"] for event in resumed["events"]]
    assert copy["state"] == resumed["state"]
    assert (await say(server, copy["id"], {"text": "still there?"}))[-1].text == "still there?"

    assert (await server.client.delete(path)).status_code == 200
    assert (await server.client.get(path)).status_code == 404
    assert [one["id"] for one in await get(server, SESSIONS)] == [copy["id"]]


async def test_a_call_may_begin_before_any_text(serve: Serve) -> None:
    """The microphone's button: a session without a body, a socket, a piece of sound four times a second."""
    model = ScriptedLiveModel([[Hears("good day"), Says("hello there")]])
    server = await serve(LlmAgent(name="desk", model=model))
    session = (await server.client.post(SESSIONS)).json()
    assert session["events"] == []
    where = {"user_id": USER, "session_id": session["id"], "modalities": "AUDIO"}
    async with talking(server.port, origin=server.url, **where) as page:
        for _ in range(2):
            await page.speak(b"\0\1" * 4000)
        await until(lambda: model.connections and len(model.connections[0].received) == 2)
        await model.connections[0].send_realtime(ActivityEnd())  # the model's service hears by itself when one stops
        frames = await page.turn()
        sound = [part["inlineData"] for frame in frames for part in frame.get("content", {}).get("parts", [])]
        assert {blob["mimeType"] for blob in sound} == {"audio/pcm;rate=24000"}
        assert all(len(base64.b64decode(blob["data"])) % 2 == 0 for blob in sound)
    said = [(f["author"], (f.get("inputTranscription") or f["outputTranscription"])["text"]) for f in frames
            if f.get("partial") is False]  # fmt: skip
    assert said == [(USER, "good day"), ("desk", "hello there")]
    resumed = await get(server, f"{SESSIONS}/{session['id']}")
    assert "inlineData" not in json.dumps(resumed)
    assert [event for event in resumed["events"] if "inputTranscription" in event]


async def replied(server: Serving, session_id: str, call: Json, response: Json, event_id: str) -> list[Frame]:
    """The request of the page when its user has filled in a form below a call."""
    part = {"functionResponse": {"id": call["id"], "name": call["name"], "response": response}}
    return await say(server, session_id, part, functionCallEventId=event_id)


def call_in(frame: Frame) -> Json:
    (part,) = frame.data["content"]["parts"]
    return part["functionCall"]


async def test_forms_are_shown_for_what_waits_for_a_person(serve: Serve) -> None:
    """The page shows a form below each call that `longRunningToolIds` names, and answers under its id and name."""
    paid: list[int] = []

    def pay(amount: int) -> Json:
        """Pay."""
        paid.append(amount)
        return {"paid": amount}

    async def ask_manager(prompt: str) -> Json:
        """Ask."""
        return {"status": "pending"}

    script = [
        FunctionCall(name="pay", args={"amount": 5}), "Paid.",
        FunctionCall(name="ask_manager", args={"prompt": "May he?"}), "I have asked.", "He may.",
    ]  # fmt: skip
    tools = [FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(ask_manager)]
    server = await serve(LlmAgent(name="desk", model=ScriptedModel(script), tools=tools))
    session = await new_conversation(server, "pay")

    _, asking, _ = await say(server, session["id"], {"text": "pay"})
    request = call_in(asking)
    assert asking.data["longRunningToolIds"] == [request["id"]]
    payload = request["args"]["originalFunctionCall"]["args"]
    filled_in = {"confirmed": True, "payload": payload}
    done, last = await replied(server, session["id"], request, filled_in, asking.data["id"])
    assert done.data["content"]["parts"][0]["functionResponse"]["response"] == {"paid": 5}
    assert last.text == "Paid."
    assert paid == [5]

    asked, _, said = await say(server, session["id"], {"text": "ask"})
    waiting = call_in(asked)
    assert asked.data["longRunningToolIds"] == [waiting["id"]]
    assert (waiting["args"]["prompt"], said.text) == ("May he?", "I have asked.")
    (last,) = await replied(server, session["id"], waiting, {"result": "yes"}, asked.data["id"])
    assert last.text == "He may."
    shown = await get(server, f"{SESSIONS}/{session['id']}")
    assert [event["author"] for event in shown["events"]].count("user") == 4


async def test_a_conversation_becomes_a_case_which_passes(serve: Serve) -> None:
    """The tab of evaluations, request by request."""
    server = await serve(desk())
    session = await new_conversation(server, "hello")
    await say(server, session["id"], {"text": "hello"})
    assert await get(server, f"{DEV}/eval_sets") == []
    new_set = {"eval_set": {"eval_set_id": "set_a", "eval_cases": [], "model_execution_mode": "LIVE"}}
    assert (await server.client.post(f"{DEV}/eval-sets", json=new_set)).json()["eval_set_id"] == "set_a"
    case = {"evalId": "c1", "sessionId": session["id"], "userId": USER}
    assert (await server.client.post(f"{DEV}/eval_sets/set_a/add_session", json=case)).status_code == 200
    assert await get(server, f"{DEV}/eval_sets/set_a/evals") == ["c1"]
    stored = await get(server, f"{DEV}/eval-sets/set_a/eval-cases/c1")
    assert stored["conversation"][0]["userContent"]["parts"] == [{"text": "hello"}]
    infos = (await get(server, f"{DEV}/metrics-info"))["metricsInfo"]
    assert all(
        {"minValue", "maxValue", "openAtMin", "openAtMax"} <= info["metricValueInfo"]["interval"].keys()
        for info in infos
    )
    run = {"eval_case_ids": ["c1"], "eval_metrics": [{"metricName": "response_match_score", "threshold": 0.7}]}
    (result,) = (await server.client.post(f"{DEV}/eval-sets/set_a/run", json=run)).json()["runEvalResults"]
    assert (result["evalId"], result["finalEvalStatus"]) == ("c1", 1)
    assert result["overallEvalMetricResults"][0]["score"] == 1.0
    assert (result["appName"], result["evalSetId"]) == ("desk", "set_a")
    assert result["evalMetricResults"] == result["overallEvalMetricResults"]
    (result_id,) = await get(server, f"{DEV}/eval_results")
    kept = await get(server, f"{DEV}/eval_results/{result_id}")
    assert result_id == f"{kept['evalSetResultId']}" == f"desk_set_a_{kept['creationTimestamp']}"
    shown = await get(server, f"/apps/desk/users/{result['userId']}/sessions/{result['sessionId']}")
    assert shown["events"][0]["author"] == "user"
    assert result["sessionId"].startswith("adk-eval-session-")


async def test_results_of_an_evaluation_are_streamed(serve: Serve) -> None:
    server = await serve(desk())
    cases = [
        {"evalId": f"c{number}", "conversation": [{"userContent": {"parts": [{"text": "hello"}]}}]}
        for number in range(3)
    ]
    new_set = {"eval_set": {"eval_set_id": "set_a", "eval_cases": cases}}
    assert (await server.client.post(f"{DEV}/eval-sets", json=new_set)).status_code == 200
    streamed = {"accept": "text/event-stream"}
    reply = await server.client.post(f"{DEV}/eval-sets/set_a/run", json={"eval_metrics": []}, headers=streamed)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *results, end = reply.text.strip().split("\n\n")
    found = [json.loads(one.removeprefix("data: ")) for one in results]
    assert [(one["finished"], one["total"]) for one in found] == [(1, 3), (2, 3), (3, 3)]
    assert {one["result"]["evalId"] for one in found} == {"c0", "c1", "c2"}
    assert {one["result"]["appName"] for one in found} == {"desk"}
    name, data = end.split("\n")
    assert name == "event: end"
    kept = await get(server, f"{DEV}/eval_results/{json.loads(data.removeprefix('data: '))['evalResultId']}")
    assert len(kept["evalCaseResults"]) == 3


async def test_the_page_keeps_a_conversation_by_its_events_and_renames_it(serve: Serve) -> None:
    """ "Add Current Session as Test" sends the events alone; renaming sends what the server answered, and deletes."""
    server = await serve(desk())
    session = await new_conversation(server, "note this")
    await say(server, session["id"], {"text": "note this"})
    stored = await get(server, f"{SESSIONS}/{session['id']}")
    data = {"session_data": {"events": stored["events"]}}
    saved = await server.client.put(f"{DEV}/tests/note_this", json=data)
    assert (saved.status_code, saved.json()) == (200, {"status": "success", "file": "note_this.json"})
    kept = await get(server, f"{DEV}/tests/note_this.json")
    assert (kept["id"], kept["appName"], kept["events"]) == ("note_this", "desk", stored["events"])
    assert kept["state"] == {"notes": 1}
    passed = "1 passed, 0 failed"
    assert passed in (await server.client.post(f"{DEV}/tests/run?test_name=note_this.json")).text
    rebuilt = await server.client.post(f"{DEV}/tests/rebuild?test_name=note_this")
    assert rebuilt.json() == {"status": "success"}, rebuilt.text

    kept = await get(server, f"{DEV}/tests/note_this.json")
    renamed = await server.client.put(f"{DEV}/tests/other", json={"session_data": kept})
    assert renamed.json() == {"status": "success", "file": "other.json"}
    assert (await server.client.delete(f"{DEV}/tests/note_this.json")).status_code == 200
    assert await get(server, f"{DEV}/tests") == ["other.json"]
    assert await get(server, f"{DEV}/tests/other.json") == kept
    assert passed in (await server.client.post(f"{DEV}/tests/run")).text

    empty = await server.client.put(f"{DEV}/tests/empty", json={"session_data": {"events": []}})
    assert empty.status_code == 200
    for wrong in ({}, {"session_data": []}, {"session_data": {"events": "x"}}, {"session_data": {"events": [1]}}):
        assert (await server.client.put(f"{DEV}/tests/wrong", json=wrong)).status_code == 422


async def test_a_test_that_adk_wrote_is_read(tmp_path: Path, serve: Serve) -> None:
    folder = tmp_path / "parrot"
    (folder / "tests").mkdir(parents=True)
    (folder / "agent.py").write_text(
        "from greenroom import LlmAgent\nfrom greenroom.testing.scripted_model import ScriptedModel\n"
        "root_agent = LlmAgent(name='parrot', model=ScriptedModel(['hello']), output_key='said')\n"
    )
    said = {"author": "parrot", "content": {"role": "model", "parts": [{"text": "hello"}]}, "invocationId": "i-1"}
    asked = {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}, "invocationId": "i-1"}
    events = [{**asked, "id": "e-1"}, {**said, "id": "e-2", "actions": {"stateDelta": {"said": "hello"}}}]
    (folder / "tests" / "hi.json").write_text(json.dumps({"events": events}))
    server = await serve(services={"app_loader": DirectoryAppLoader(tmp_path)})
    kept = await get(server, "/dev/apps/parrot/tests/hi.json")
    assert [event["id"] for event in kept["events"]] == ["e-1", "e-2"]
    assert kept["state"] == {"said": "hello"}
    assert "1 passed, 0 failed" in (await server.client.post("/dev/apps/parrot/tests/run")).text


async def test_a_conversation_becomes_a_test_which_fails_after_a_change(serve: Serve) -> None:
    """The tab of tests, request by request."""
    agent = desk()
    server = await serve(agent)
    session = await new_conversation(server, "note this")
    await say(server, session["id"], {"text": "note this"})
    assert await get(server, f"{DEV}/tests") == []
    data = {"session_data": await get(server, f"{SESSIONS}/{session['id']}")}
    for name in ("t1.json", "t2_xfail"):
        saved = await server.client.put(f"{DEV}/tests/{name}", json=data)
        assert saved.json() == {"status": "success", "file": f"{name.removesuffix('.json')}.json"}

    assert await get(server, f"{DEV}/tests") == ["t1.json", "t2_xfail.json"]
    assert (await get(server, f"{DEV}/tests/t1.json"))["events"] == data["session_data"]["events"]
    ran = await server.client.post(f"{DEV}/tests/run?test_name=t1.json")
    assert ran.headers["content-type"].startswith("text/plain")
    assert ran.text == "t1.json PASSED\n1 passed, 0 failed\n"
    model = agent.model
    agent.output_key = "said"
    lines = (await server.client.post(f"{DEV}/tests/run")).text.splitlines()
    assert (lines[0], lines[-2], lines[-1]) == ("t1.json FAILED", "t2_xfail.json XFAIL", "1 passed, 1 failed")
    assert len(lines) > 3
    assert agent.model is model  # nothing is left of the replays
    agent.model = ScriptedModel(["No notes any more."])
    rebuilt = await server.client.post(f"{DEV}/tests/rebuild?test_name=t1.json")
    assert rebuilt.json() == {"status": "success"}, rebuilt.text
    again = await server.client.post(f"{DEV}/tests/run?test_name=t1.json")
    assert again.text == "t1.json PASSED\n1 passed, 0 failed\n"
    assert (await server.client.delete(f"{DEV}/tests/t1.json")).json() == {"status": "success"}
    for method, name in (("DELETE", "t1.json"), ("GET", "t1.json"), ("PUT", "a.b"), ("PUT", "..%2Fagent")):
        gone = await server.client.request(method, f"{DEV}/tests/{name}", json=data if method == "PUT" else None)
        assert (gone.status_code, gone.json()["detail"]) == (404, "Test file not found")


async def test_a_link_to_a_conversation_that_is_gone_leads_to_a_new_one(serve: Serve) -> None:
    server = await serve(desk())
    reply = await server.client.get(f"{SESSIONS}/gone")
    assert (reply.status_code, reply.json()["detail"][:17]) == (404, "Session not found")
    session = await new_conversation(server, "hello")
    assert (await say(server, session["id"], {"text": "hello"}))[-1].text == "hello"


async def test_an_agent_is_edited_in_the_visual_editor(serve: Serve, tmp_path: Path) -> None:
    """From opening the editor to leaving it, request by request."""
    folder = tmp_path / "agents" / "desk"
    folder.mkdir(parents=True)
    first, second = (f"name: desk\nmodel: gemini-2.5-flash\ninstruction: {text}\n" for text in ("Greet.", "Sing."))
    (folder / "root_agent.yaml").write_text(first)
    server = await serve(services={"app_loader": DirectoryAppLoader(folder.parent)}, edit=True)
    form = [("files", ("desk/root_agent.yaml", second.encode(), "application/x-yaml"))]

    async def shown(path: str) -> str:
        return (await server.client.get(f"{DEV}/builder?ts={int(time.time() * 1000)}{path}")).text

    assert await shown("&tmp=true") == first
    assert (await server.client.post(f"{DEV}/builder/save?tmp=true", files=form)).json() is True
    assert (await shown("&tmp=true"), await shown("")) == (second, first)
    assert (await server.client.post(f"{DEV}/builder/cancel")).json() is True
    assert await shown("&tmp=true") == first
    assert (await server.client.post(f"{DEV}/builder/save", files=form)).json() is True
    assert await shown("") == second


async def test_the_page_finds_no_assistant_that_builds_agents(serve: Serve) -> None:
    """Its name is kept for apps that a server brings along; this one brings none."""
    server = await serve(desk())
    app = "__adk_agent_builder_assistant"
    created = await server.client.post(f"/apps/{app}/users/{USER}/sessions")
    assert (created.status_code, created.json()["code"]) == (404, "AppNotFound")
    body = {"appName": app, "userId": USER, "sessionId": "s", "newMessage": {"parts": [{"text": "x"}]},
            "stateDelta": {"root_directory": "desk"}}  # fmt: skip
    reply = await server.client.post("/run_sse", json=body)
    assert (reply.status_code, reply.json()["code"]) == (404, "AppNotFound")


async def test_the_stop_button_leaves_the_conversation_as_it_was_stored(serve: Serve) -> None:
    server = await serve(desk())
    session = await new_conversation(server, "hello")
    connection = await server.connect()
    body = {
        "appName": "desk", "userId": USER, "sessionId": session["id"], "streaming": True,
        "newMessage": {"role": "user", "parts": [{"text": "hello"}]},
    }  # fmt: skip
    await connection.post("/run_sse", body)
    await connection.head()
    connection.drop()
    frames = await say(server, session["id"], {"text": "and now?"})
    assert frames[-1].text == "and now?"
    stored = await get(server, f"{SESSIONS}/{quote(session['id'])}")
    assert [event["author"] for event in stored["events"]][-2:] == ["user", "desk"]
