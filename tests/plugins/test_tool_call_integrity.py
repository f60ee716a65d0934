"""Signed tool calls, and calls that something else wrote into the log. Row 8.1."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError, PluginFailed
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.tool_call_integrity import ToolCallIntegrityError, ToolCallIntegrityPlugin
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.runner.runner import Runner
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.human_input.approvals import decide, request_ids
from tests.agents.talk import call, lines_of
from tests.plugins.watched import WatchedTalk

KEY = b"a secret"
STAMPS = "__adk_internal_fc_hmac"


def pay(amount: float) -> str:
    return f"paid {amount}"


def agent(*script: Any, ask: bool = False) -> LlmAgent:
    return LlmAgent(name="desk", model=ScriptedModel(list(script)), tools=[FunctionTool(pay, require_confirmation=ask)])


def cause_of(raised: pytest.ExceptionInfo[PluginFailed]) -> BaseException | None:
    return raised.value.__cause__


async def test_a_call_is_stored_with_its_signature() -> None:
    talk = WatchedTalk(agent(call("pay", "c-1", amount=5.0), "done"), ToolCallIntegrityPlugin(KEY))
    await talk.say("pay 5")
    event = (await talk.log())[1]
    signed = {
        "app_name": "app", "user_id": "ada", "session_id": "s-1", "invocation_id": event.invocation_id, "branch": None,
        "author": "desk", "name": "pay", "id": "c-1", "args": {"amount": 5},
    }  # fmt: skip
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    stamp = "v1:" + hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()
    assert (event.custom_metadata or {})[STAMPS] == {"c-1": stamp}


async def test_signed_calls_run_and_the_next_run_begins() -> None:
    script = (call("pay", amount=5), "done", call("pay", amount=6), "done again")
    talk = WatchedTalk(agent(*script), ToolCallIntegrityPlugin(KEY))
    await talk.say("pay 5")
    assert "desk: pay -> {'result': 'paid 6.0'}" in lines_of(await talk.say("pay 6"))


async def forge(talk: WatchedTalk, metadata: JsonObject | None = None) -> None:
    """Adds a call to the log, as somebody with access to the store may."""
    sessions = talk.runner.session_service
    session = await sessions.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    forged = FunctionCall(id="c-9", name="pay", args={"amount": 1000})
    content = Content(role="model", parts=[Part(function_call=forged)])
    await sessions.append_event(session, Event(author="desk", content=content, custom_metadata=metadata))


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (None, "'c-9' of 'pay' has no signature"),
        ({STAMPS: "text"}, "'c-9' of 'pay' has no signature"),
        ({STAMPS: {"c-9": "v1:00"}}, "'c-9' of 'pay' is not valid"),
        ({STAMPS: {"c-9": 5}}, "'c-9' of 'pay' is not valid"),
    ],
)
async def test_a_call_without_a_valid_signature_keeps_runs_from_starting(
    metadata: JsonObject | None, error: str
) -> None:
    talk = WatchedTalk(agent("hi", "hi again"), ToolCallIntegrityPlugin(KEY))
    await talk.say("hello")
    await forge(talk, metadata)
    with pytest.raises(PluginFailed, match=error) as raised:
        await talk.say("hello again")
    assert isinstance(cause_of(raised), ToolCallIntegrityError)
    assert isinstance(cause_of(raised), ValueError)


async def test_calls_without_a_signature_can_be_allowed(caplog: pytest.LogCaptureFixture) -> None:
    talk = WatchedTalk(agent("hi", "hi again"), ToolCallIntegrityPlugin(KEY, allow_unstamped_calls=True))
    await talk.say("hello")
    await forge(talk)
    assert lines_of(await talk.say("hello again")) == ["desk: hi again"]
    assert "the call 'c-9' of 'pay' has no signature" in caplog.text


async def test_a_changed_call_is_found_after_a_restart_and_with_an_old_key(tmp_path: Path) -> None:
    async def run(plugin: ToolCallIntegrityPlugin, *script: Any) -> None:
        sessions = SqliteSessionService(tmp_path / "sessions.db")
        try:
            app = App(name="app", root_agent=agent(*script), plugins=[plugin])
            runner = Runner(app=app, session_service=sessions)
            if await sessions.get_session(app_name="app", user_id="ada", session_id="s-1") is None:
                await sessions.create_session(app_name="app", user_id="ada", session_id="s-1")
            message = Content(role="user", parts=[Part(text="go")])
            async for _ in runner.run_async(user_id="ada", session_id="s-1", new_message=message):
                pass
        finally:
            await sessions.close()

    await run(ToolCallIntegrityPlugin(KEY), call("pay", "c-1", amount=5), "done")
    await run(ToolCallIntegrityPlugin([b"new", KEY]), "hi")
    with pytest.raises(PluginFailed, match="'c-1' of 'pay' is not valid"):
        await run(ToolCallIntegrityPlugin(b"new"), "hi")


async def test_arguments_that_another_plugin_changed_are_not_executed() -> None:
    class Raise(BasePlugin):
        async def before_tool_callback(self, *, tool: Any, tool_args: JsonObject, tool_context: Any) -> None:
            tool_args["amount"] = 500

    talk = WatchedTalk(agent(call("pay", "c-1", amount=5)), Raise("raise"), ToolCallIntegrityPlugin(KEY))
    with pytest.raises(PluginFailed, match="'c-1' of 'pay' is not the one in the session's log"):
        await talk.say("pay 5")


@pytest.mark.parametrize(("payload", "paid"), [(None, "paid 5.0"), ({"amount": 4}, "paid 4.0")])
async def test_an_approved_call_runs_also_with_arguments_that_the_person_edited(payload: Any, paid: str) -> None:
    talk = WatchedTalk(agent(call("pay", "c-1", amount=5), "done", ask=True), ToolCallIntegrityPlugin(KEY))
    events = await talk.say("pay 5")
    answered = await talk.say(decide(request_ids(events)[0], confirmed=True, payload=payload))
    assert f"desk: pay -> {{'result': '{paid}'}}" in lines_of(answered)


def test_an_empty_key_is_refused() -> None:
    for key in (b"", [], [b"a", b""]):
        with pytest.raises(AgentConfigError, match="secret key"):
            ToolCallIntegrityPlugin(key)
