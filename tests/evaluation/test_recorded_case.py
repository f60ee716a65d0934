"""Recorded cases made of sessions, so that these can be replayed."""

from __future__ import annotations

from pathlib import Path

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.cli import recordings
from greenroom.evaluation.recorded_case import RecordedCase, UserMessage, spec_of, with_open_calls
from greenroom.plugins.recording import recording_of
from greenroom.plugins.recordings_file import dump_recordings
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.session import Session
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import Talk, answer, call

REQUEST = "adk_request_confirmation"


def said(text: str, **delta: object) -> Event:
    content = Content(role="user", parts=[Part(text=text)])
    return Event(author="user", content=content, actions=EventActions(state_delta=dict(delta)))


def test_a_spec_has_the_messages_the_state_they_brought_and_what_was_there_before() -> None:
    picture = Content(role="user", parts=[Part.from_bytes(data=b"\xfb\xff", mime_type="image/png")])
    patch = Event(author="user", actions=EventActions(state_delta={"mood": "good"}))
    reply = Event(author="a", actions=EventActions(state_delta={"said": 1}))
    config = {"_adk_recordings_config": {"dir": "x"}}
    session = Session(
        id="s",
        app_name="app",
        user_id="ada",
        events=[said("hi", lang="en", **config), reply, patch, Event(author="user", content=picture)],  # pyright: ignore[reportArgumentType]
        state={"lang": "en", "said": 1, "mood": "good", "user:home": "Oslo", "size": 3, **config},
    )
    spec = spec_of(session)
    assert spec.agent == "app"
    assert spec.initial_state == {"user:home": "Oslo", "size": 3}
    assert spec.user_messages == [
        UserMessage(text="hi", state_delta={"lang": "en"}),
        UserMessage(
            content={"role": "user", "parts": [{"inline_data": {"data": "-_8=", "mime_type": "image/png"}}]},
            state_delta={"mood": "good"},
        ),
    ]
    assert spec.user_messages[1].as_content() == picture


def test_answers_find_the_oldest_open_call_of_their_name() -> None:
    def asking(*ids: str) -> Event:
        parts = [Part(function_call=call("ask", call_id)) for call_id in ids]
        return Event(author="a", content=Content(role="model", parts=parts), long_running_tool_ids=list(ids))

    def ids(content: Content | None) -> list[str | None]:
        return [
            part.function_response.id for part in (content.parts if content else None) or () if part.function_response
        ]

    answered = Event(author="user", content=answer("ask", "c-1", {}))
    events = CopyOnWriteList([asking("c-1"), answered, asking("c-2", "c-3")])
    one = answer("ask", "old", {})
    assert ids(with_open_calls(one, events)) == ["c-2"]
    assert ids(with_open_calls(Content(parts=[*(one.parts or ()), *(one.parts or ())]), events)) == ["c-2", "c-3"]
    assert ids(with_open_calls(answer("ask", "c-3", {}), events)) == ["c-3"]
    assert ids(with_open_calls(answer("other", "old", {}), events)) == ["old"]
    text = Content(parts=[Part(text="hi")])
    assert with_open_calls(text, events) is text


async def test_a_conversation_in_which_a_person_was_asked_is_had_again(tmp_path: Path) -> None:
    paid: list[int] = []

    def pay(amount: int) -> JsonObject:
        paid.append(amount)
        return {"paid": amount}

    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[FunctionTool(pay, require_confirmation=True)])

    talk = Talk(agent(ScriptedModel([call("pay", amount=5), "paid"])))
    asked = await talk.say("pay 5")
    (request,) = [made for event in asked for made in event.get_function_calls() if made.name == REQUEST]
    await talk.say(answer(REQUEST, request.id, {"confirmed": True}))
    session = await talk._session()
    assert session is not None
    case = RecordedCase(tmp_path / "pay", "none")
    case.clear()
    case.recordings_path.write_text(dump_recordings(recording_of(session)))
    case.write(spec_of(session), session)
    app = App(name="app", root_agent=agent(ScriptedModel([])))
    assert await recordings._difference(app, case, run_tools=True, verify_requests=True) == ""
    assert paid == [5, 5]
