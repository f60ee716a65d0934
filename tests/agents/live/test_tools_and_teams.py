"""Streaming tools, hand-overs, sequences, after-model callbacks, plugins and approvals in a live conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import LlmCallsLimitExceeded
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.user_context import ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.auth import AuthConfig, AuthScheme
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import RunConfig
from greenroom.testing import Says, ScriptedLiveModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.live.calls import Call, calling, lines_of


def agent(name: str, *script: Any, **more: Any) -> tuple[LlmAgent, ScriptedLiveModel]:
    model = ScriptedLiveModel(script)
    return LlmAgent(name=name, model=model, **more), model


def responses_to(model: ScriptedLiveModel, name: str) -> list[FunctionResponse]:
    """The responses of a function that the model got, on all connections."""
    contents = [data for connection in model.connections for data in connection.received if isinstance(data, Content)]
    parts = [part.function_response for content in contents for part in content.parts or ()]
    return [response for response in parts if response is not None and response.name == name]


def stop_streaming(function_name: str) -> None:
    """Stops a streaming function."""


async def test_a_streaming_tool_sends_one_value_after_the_other() -> None:
    async def watch(stock: str, tool_context: ToolContext) -> AsyncIterator[dict[str, int]]:
        """Watches a price."""
        for price in (1, 2):
            tool_context.state["price"] = price
            yield {stock: price}

    call_it = FunctionCall(name="watch", args={"stock": "ACME"})
    desk, model = agent("desk", call_it, "Watching.", "It is 1.", "It is 2.", "That was all.", tools=[watch])
    async with calling(desk) as call:
        call.say("watch ACME")
        await call.turns(4)
        await call.end()
        log = await call.log()
        session = await call.runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    told_of = responses_to(model, "watch")
    assert [(r.response, r.will_continue) for r in told_of] == [
        ({"status": "The function is running; its results will come one by one."}, None),
        ({"ACME": 1}, True),
        ({"ACME": 2}, True),
        ({"status": "The function has ended."}, None),
    ]
    assert len({response.id for response in told_of}) == 1
    assert [event.actions.state_delta for event in log if event.actions.state_delta] == [{"price": 1}, {"price": 2}]
    assert session is not None
    assert session.state == {"price": 2}
    assert "desk got {'ACME': 2}" in lines_of(log)


async def test_tools_that_answer_later_are_declared_as_such_and_say_how_they_are_heard() -> None:
    """Row 12.7."""

    async def watch() -> AsyncIterator[int]:
        """Watches."""
        yield 1

    def ask() -> str:
        """Asks."""
        return "yes"

    watching, asking, waiting = FunctionTool(watch), FunctionTool(ask), FunctionTool(ask, name="wait")
    watching.response_scheduling, asking.response_scheduling = "SILENT", "WHEN_IDLE"
    waiting.behavior = "BLOCKING"
    watch_it, ask_it = FunctionCall(name="watch", args={}), FunctionCall(name="ask", args={})
    script = (watch_it, "Watching.", "It is 1.", "That was all.", ask_it, "Ok.")
    desk, model = agent("desk", *script, tools=[watching, asking, waiting, stop_streaming])
    async with calling(desk) as call:
        call.say("watch")
        await call.turns(3)
        call.say("ask")
        await call.turns(4)
        await call.end()
    declared = {d.name: d.behavior for d in model.connections[0].request.function_declarations()}
    assert declared == {"watch": "NON_BLOCKING", "ask": "NON_BLOCKING", "wait": "BLOCKING", "stop_streaming": None}
    assert {response.scheduling for response in responses_to(model, "watch")[1:]} == {"SILENT"}
    assert [response.scheduling for response in responses_to(model, "ask")] == ["WHEN_IDLE"]


async def test_a_streaming_tool_is_stopped_by_name_and_one_of_a_name_runs_at_a_time() -> None:
    stopped = asyncio.Event()

    async def watch() -> AsyncIterator[int]:
        """Watches."""
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            stopped.set()

    desk, model = agent(
        "desk",
        FunctionCall(name="watch", args={}), "Watching.", "One.",
        FunctionCall(name="watch", args={}), "It is running.",
        FunctionCall(name="stop_streaming", args={"function_name": "watch"}), "Stopped.",
        FunctionCall(name="stop_streaming", args={"function_name": "watch"}), "It was not running.",
        tools=[watch, stop_streaming],
    )  # fmt: skip
    async with calling(desk) as call:
        for turns, text in ((2, "watch"), (3, "again"), (4, "stop"), (5, "stop")):
            call.say(text)
            await call.turns(turns)
        await call.end()
    assert stopped.is_set()
    assert [r.response for r in responses_to(model, "watch")][1:] == [
        {"result": 1}, {"error": "watch is running already; stop it first."},
    ]  # fmt: skip
    assert [r.response for r in responses_to(model, "stop_streaming")] == [
        {"status": "watch was stopped."}, {"error": "No function named 'watch' is streaming."},
    ]  # fmt: skip


async def test_a_streaming_tool_hears_what_the_client_says() -> None:
    async def count(input_stream: LiveRequestQueue) -> AsyncIterator[int]:
        """Counts the bytes that are spoken."""
        while True:
            request = await input_stream.get()
            if request.blob is not None:
                yield len(request.blob.data or b"")

    desk, model = agent("desk", FunctionCall(name="count", args={}), "Counting.", "Five.", tools=[count])
    async with calling(desk) as call:
        call.say("count")
        await call.turns(1)
        call.speak(b"12345")
        await call.turns(2)
        await call.end()
    assert [r.response for r in responses_to(model, "count")][1:] == [{"result": 5}]


async def test_a_streaming_tool_that_fails_is_reported_to_the_model() -> None:
    async def broken() -> AsyncIterator[int]:
        """Fails."""
        yield 1
        raise ValueError("no")

    desk, model = agent("desk", FunctionCall(name="broken", args={}), "On it.", "One.", "It failed.", tools=[broken])
    async with calling(desk) as call:
        call.say("go")
        await call.turns(3)
        await call.end()
    assert responses_to(model, "broken")[-1].response == {"error": "ValueError: no"}


async def test_another_agent_takes_over_with_the_same_client() -> None:
    clerk, clerks = agent("clerk", "I am the clerk.", "Room 12.", description="Knows the rooms.")
    transfer = FunctionCall(name="transfer_to_agent", args={"agent_name": "clerk"})
    desk, desks = agent("desk", "Hello.", transfer, sub_agents=[clerk])
    async with calling(desk) as call:
        call.say("hi")
        await call.turns(1)
        call.say("a room please")
        await call.turns(2)
        call.say("which?")
        await call.turns(3)
        await call.end()
        log = await call.log()
    assert lines_of(log) == [
        "user: hi", "desk: Hello.", "turn_complete", "user: a room please", "desk calls transfer_to_agent",
        "desk got {'result': None}", "clerk: I am the clerk.", "turn_complete", "user: which?", "clerk: Room 12.", "turn_complete",
    ]  # fmt: skip
    assert desks.connections[0].is_closed
    assert "a room please" in [content.text() for content in clerks.connections[0].history or ()]
    assert len(clerks.connections[0].received) == 1


async def test_control_does_not_come_back_in_a_live_run_nor_is_that_offered() -> None:
    clerk, _ = agent("clerk", "I am the clerk.")
    transfer = FunctionCall(name="transfer_to_agent", args={"agent_name": "clerk", "return": True})
    desk, desks = agent("desk", transfer, "Never said.", sub_agents=[clerk])
    async with calling(desk) as call:
        call.say("a room please")
        await call.turns(1)
        await call.end()
        assert lines_of(await call.log())[-3:] == [
            "desk got {'result': None}",
            "clerk: I am the clerk.",
            "turn_complete",
        ]
    (declared,) = desks.connections[0].request.function_declarations()
    assert list(declared.json_schema()["properties"]) == ["agent_name"]


async def test_the_next_live_run_begins_where_the_conversation_was_left() -> None:
    clerk, _ = agent("clerk", "I am the clerk.", "Still me.")
    transfer = FunctionCall(name="transfer_to_agent", args={"agent_name": "clerk"})
    desk, _ = agent("desk", transfer, sub_agents=[clerk])
    async with calling(desk) as first:
        first.say("a room")
        await first.turns(1)
        await first.end()
        async with calling(desk, runner=first.runner) as second:
            second.say("and now?")
            await second.turns(1)
            assert "clerk: Still me." in lines_of(await second.end())


async def test_a_sequence_continues_when_an_agent_says_that_it_is_done() -> None:
    done = FunctionCall(name="task_completed", args={})
    first, firsts = agent("first", "Your name?", done, "Thank you.")
    second, seconds = agent("second", "And your age?", "Noted.")
    team = SequentialAgent(name="team", sub_agents=[first, second])
    async with calling(team) as call:
        call.say("hi")
        await call.turns(1)
        call.say("Ann")
        await call.turns(3)
        call.say("30")
        await call.turns(4)
        await call.end()
        log = await call.log()
    assert [line for line in lines_of(log) if line.startswith(("first:", "second:"))] == [
        "first: Your name?", "first: Thank you.", "second: And your age?", "second: Noted.",
    ]  # fmt: skip
    assert "task_completed" in firsts.connections[0].request.tools_dict
    assert "task_completed" in str(seconds.connections[0].request.config.system_text())
    assert not first.tools  # what the sequence adds belongs to the run


async def test_a_client_that_hangs_up_ends_a_sequence() -> None:
    first, _ = agent("first", "Your name?")
    second, seconds = agent("second", "And your age?")
    async with calling(SequentialAgent(name="team", sub_agents=[first, second])) as call:
        call.say("hi")
        await call.turns(1)
        await call.end()
    assert not seconds.connections


async def test_after_model_callbacks_see_words_and_not_each_piece_of_audio() -> None:
    seen: list[LlmResponse] = []

    def watch(llm_response: LlmResponse, **_: Any) -> None:
        seen.append(llm_response)

    desk, _ = agent("desk", [Says("one two"), "three"], after_model_callback=watch)
    async with calling(desk) as call:
        call.say("count")
        await call.turns()
        await call.end()
    assert [bool(reply.output_transcription) for reply in seen] == [True, True, True, False, False]


class Watching(BasePlugin):
    def __init__(self) -> None:
        super().__init__("watching")
        self.seen: list[str] = []

    async def before_run_callback(self, **_: Any) -> None:
        self.seen.append("before_run")

    async def before_agent_callback(self, *, agent: Any, **_: Any) -> None:
        self.seen.append(f"before_agent {agent.name}")

    async def after_agent_callback(self, *, agent: Any, **_: Any) -> None:
        self.seen.append(f"after_agent {agent.name}")

    async def before_tool_callback(self, *, tool: Any, **_: Any) -> None:
        self.seen.append(f"before_tool {tool.name}")

    async def after_tool_callback(self, *, tool: Any, result: Any, **_: Any) -> dict[str, str]:
        self.seen.append(f"after_tool {tool.name}")
        return {"changed": str(result)}

    async def on_event_callback(self, *, event: Event, **_: Any) -> Event | None:
        if event.output_transcription is not None and not event.partial:
            return Event(author=event.author, custom_metadata={"seen": True})
        return None

    async def after_run_callback(self, **_: Any) -> None:
        self.seen.append("after_run")


async def test_plugins_are_asked_at_every_point() -> None:
    def dice() -> int:
        """Rolls."""
        return 4

    plugin = Watching()
    desk, model = agent("desk", FunctionCall(name="dice", args={}), Says("four"), tools=[dice])
    async with calling(desk, plugins=[plugin]) as call:
        call.say("roll")
        await call.turns()
        await call.end()
        log = await call.log()
    assert plugin.seen == [
        "before_run", "before_agent desk", "before_tool dice", "after_tool dice", "after_agent desk", "after_run",
    ]  # fmt: skip
    assert responses_to(model, "dice")[0].response == {"changed": "4"}
    assert [event.custom_metadata for event in log if event.output_transcription] == [{"seen": True}]


class Paid:
    def __init__(self) -> None:
        self.amounts: list[int] = []

    def pay(self, amount: int) -> dict[str, int]:
        """Pays."""
        self.amounts.append(amount)
        return {"paid": amount}


def approval(call: Call, confirmed: bool) -> Content:
    request = next(c for e in call.events for c in e.get_function_calls() if c.name == "adk_request_confirmation")
    answer = FunctionResponse(id=request.id, name=request.name, response={"confirmed": confirmed})
    return Content(role="user", parts=[Part(function_response=answer)])


async def test_an_approval_is_given_within_the_conversation_once() -> None:
    paid = Paid()
    pay = FunctionTool(paid.pay, require_confirmation=True)
    desk, _ = agent("desk", FunctionCall(name="pay", args={"amount": 5}), "May I?", "Paid.", tools=[pay])
    async with calling(desk) as call:
        call.say("pay 5")
        await call.turns(1)
        assert paid.amounts == []
        call.queue.send_content(approval(call, True))
        await call.turns(2)
        call.queue.send_content(approval(call, True))
        refused = await call.until(lambda e: e.error_code and e.partial)
        await call.end()
        log = await call.log()
    assert paid.amounts == [5]
    assert refused.error_code == "ApprovalRefused"
    assert "desk got {'paid': 5}" in lines_of(log)


async def test_an_approval_with_a_policy_is_not_given_within_the_conversation() -> None:
    paid = Paid()
    pay = FunctionTool(paid.pay, require_confirmation=ApprovalPolicy(users=["bob"]))
    desk, _ = agent("desk", FunctionCall(name="pay", args={"amount": 5}), "May I?", "x", tools=[pay])
    async with calling(desk) as call:
        call.say("pay 5")
        await call.turns(1)
        call.queue.send_content(approval(call, True))
        refused = await call.until(lambda e: e.error_code and e.partial)
        await call.end()
    assert refused.error_code == "NotApprover"
    assert paid.amounts == []


async def test_an_approval_that_this_conversation_did_not_ask_for_is_refused() -> None:
    paid = Paid()
    pay = FunctionTool(paid.pay, require_confirmation=True)
    desk, _ = agent("desk", FunctionCall(name="pay", args={"amount": 5}), "May I?", "x", tools=[pay])
    async with calling(desk) as first:
        first.say("pay 5")
        await first.turns(1)
        await first.end()
        async with calling(desk, runner=first.runner) as second:
            second.queue.send_content(approval(first, True))
            refused = await second.until(lambda e: e.error_code)
            await second.end()
    assert refused.error_code == "ApprovalRefused"
    assert paid.amounts == []


async def test_a_key_is_given_within_the_conversation_and_is_not_in_its_log() -> None:
    config = AuthConfig(auth_scheme=AuthScheme(type="apiKey", in_="header", name="X-Key"))
    keys: list[str | None] = []

    def look_up(tool_context: ToolContext) -> str | None:
        """Looks something up."""
        granted = tool_context.get_auth_response(config)
        keys.append(granted.api_key if granted is not None else None)
        if granted is None:
            tool_context.request_credential(config)
            return None
        return "found"

    desk, _ = agent("desk", FunctionCall(name="look_up", args={}), "A key, please.", "Found.", tools=[look_up])
    async with calling(desk) as call:
        call.say("look it up")
        await call.turns(1)
        request = next(c for e in call.events for c in e.get_function_calls() if c.name == "adk_request_credential")
        answer = FunctionResponse(id=request.id, name=request.name, response={"result": "sesame"})
        call.queue.send_content(Content(role="user", parts=[Part(function_response=answer)]))
        await call.turns(2)
        await call.end()
        log = await call.log()
    assert keys == [None, "sesame"]
    assert "desk got {'result': 'found'}" in lines_of(log)
    assert "sesame" not in str(log)


async def test_a_tool_that_raises_gives_one_event_with_the_name_of_its_exception() -> None:
    def pay() -> None:
        """Pays."""
        raise ZeroDivisionError("no money")

    desk, _ = agent("desk", FunctionCall(name="pay", args={}), tools=[pay])
    async with calling(desk) as call:
        call.say("pay")
        with pytest.raises(ZeroDivisionError):
            await call.ended()
        log = await call.log()
    failed = log[-1]
    assert lines_of(log)[1:] == [
        "desk calls pay",
        "desk got {'error': \"Tool 'pay' raised ZeroDivisionError: no money\"}",
        "error_code: ZeroDivisionError",
    ]
    assert (failed.error_code, failed.error_message) == ("ZeroDivisionError", "no money")


async def test_responses_to_calls_count_as_calls_of_the_model() -> None:
    def look() -> str:
        """Looks."""
        return "nothing"

    desk, model = agent("desk", *[FunctionCall(name="look", args={})] * 5, tools=[look])
    async with calling(desk, config=RunConfig(max_llm_calls=3)) as call:
        call.say("look")
        with pytest.raises(LlmCallsLimitExceeded):
            await call.ended()
    assert len(responses_to(model, "look")) == 2


async def test_a_call_that_is_being_stored_when_the_client_leaves_is_made() -> None:
    class Leaves(BasePlugin):
        """The client leaves while the model's call is on its way into the log."""

        def __init__(self) -> None:
            super().__init__(name="leaves")
            self.call: Call | None = None

        async def on_event_callback(self, *, invocation_context: object, event: Event) -> None:
            if event.get_function_calls() and self.call is not None:
                self.call.queue.close()
                for _ in range(20):
                    await asyncio.sleep(0)

    def look() -> str:
        """Looks."""
        return "seen"

    plugin = Leaves()
    desk, _ = agent("desk", FunctionCall(id="c-1", name="look", args={}), "Seen.", tools=[look])
    async with calling(desk, plugins=[plugin]) as call:
        plugin.call = call
        call.say("look")
        await call.ended()
        log = await call.log()
    answers = [response for event in log for response in event.get_function_responses()]
    assert [(answer.id, answer.response) for answer in answers] == [("c-1", {"result": "seen"})]
