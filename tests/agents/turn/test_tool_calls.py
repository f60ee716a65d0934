"""The calls of one model reply: side by side, answered in one event, each settled whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pydantic
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import ToolError
from greenroom.invocation.user_context import CallbackContext, ReadonlyContext, ToolContext
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.run import RunConfig
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.agents.talk import Talk, call, lines_of, shown


async def ping(name: str) -> str:
    return f"pong {name}"


async def test_responses_stand_in_the_order_of_the_calls_whichever_ends_first() -> None:
    later = asyncio.Event()

    async def slow() -> str:
        await later.wait()
        return "slow"

    async def fast() -> str:
        later.set()
        return "fast"

    model = ScriptedModel([[call("slow", "c-1"), call("fast", "c-2")], "both"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[slow, fast])).say("go")
    assert lines_of(events) == [
        "a: slow()",
        "a: fast()",
        "a: slow -> {'result': 'slow'}",
        "a: fast -> {'result': 'fast'}",
        "a: both",
    ]
    assert events[1] == Event(
        id=events[1].id,
        invocation_id=events[0].invocation_id,
        timestamp=events[1].timestamp,
        author="a",
        content=Content(
            role="user",
            parts=[
                Part(function_response=FunctionResponse(id="c-1", name="slow", response={"result": "slow"})),
                Part(function_response=FunctionResponse(id="c-2", name="fast", response={"result": "fast"})),
            ],
        ),
    )


async def test_calls_run_one_after_the_other_when_the_run_asks_for_it() -> None:
    trace: list[str] = []

    async def step(name: str) -> None:
        trace.append(f"{name} begins")
        await asyncio.sleep(0)
        trace.append(f"{name} ends")

    model = ScriptedModel([[call("step", name="x"), call("step", name="y")], "done"])
    await Talk(LlmAgent(name="a", model=model, tools=[step])).say(
        "go", run_config=RunConfig(tool_execution_mode="SEQUENTIAL")
    )
    assert trace == ["x begins", "x ends", "y begins", "y ends"]


async def test_calls_without_an_id_get_one_before_they_are_seen() -> None:
    model = ScriptedModel([[call("ping", name="x"), call("ping", name="y")], "done"])
    calls, responses, _ = await Talk(LlmAgent(name="a", model=model, tools=[ping])).say("go")
    ids = [c.id for c in calls.get_function_calls()]
    assert ids == [r.id for r in responses.get_function_responses()]
    assert len(set(ids)) == 2
    assert all(i is not None and i.startswith("adk-") for i in ids)
    assert calls.long_running_tool_ids == []


async def test_an_id_that_the_model_gave_stays() -> None:
    model = ScriptedModel([call("ping", "toolu_7", name="x"), "done"])
    calls, responses, _ = await Talk(LlmAgent(name="a", model=model, tools=[ping])).say("go")
    assert [calls.get_function_calls()[0].id, responses.get_function_responses()[0].id] == ["toolu_7", "toolu_7"]


async def test_of_two_calls_with_one_id_the_second_gets_another() -> None:
    model = ScriptedModel([[call("ping", "c-1", name="x"), call("ping", "c-1", name="y")], "done"])
    calls, responses, _ = await Talk(LlmAgent(name="a", model=model, tools=[ping])).say("go")
    first, second = [c.id for c in calls.get_function_calls()]
    assert (first, (second or "")[:4]) == ("c-1", "adk-")
    assert [r.id for r in responses.get_function_responses()] == [first, second]


async def test_a_call_of_an_unknown_tool_is_answered_with_the_known_tools() -> None:
    model = ScriptedModel([[call("pong"), call("ping", name="x")], "I see"])
    assert lines_of(await Talk(LlmAgent(name="a", model=model, tools=[ping])).say("go")) == [
        "a: pong()",
        "a: ping(name='x')",
        "a: pong -> {'error': \"There is no tool 'pong'. Tools that exist: ping.\"}",
        "a: ping -> {'result': 'pong x'}",
        "a: I see",
    ]


async def test_wrong_arguments_are_reported_to_the_model() -> None:
    model = ScriptedModel([call("ping"), "sorry"])
    (_, response, _) = await Talk(LlmAgent(name="a", model=model, tools=[ping])).say("go")
    assert "name" in str(response.get_function_responses()[0].response)


async def test_a_tool_that_raises_ends_the_run_when_all_its_siblings_are_settled() -> None:
    finished: list[str] = []
    raised = asyncio.Event()

    async def breaks() -> None:
        raised.set()
        raise KeyError("no such thing")

    async def goes_on(tool_context: ToolContext) -> str:
        await raised.wait()
        await asyncio.sleep(0)
        tool_context.state["paid"] = True
        finished.append("goes_on")
        return "paid"

    model = ScriptedModel([[call("breaks", "c-1"), call("goes_on", "c-2")], "what next?"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[breaks, goes_on]))
    with pytest.raises(KeyError, match="no such thing"):
        await talk.say("go")
    assert finished == ["goes_on"]
    assert lines_of(await talk.log()) == [
        "user: go",
        "a: breaks()",
        "a: goes_on()",
        "a: breaks -> {'error': \"Tool 'breaks' raised KeyError: 'no such thing'\"}",
        "a: goes_on -> {'result': 'paid'}",
        "a ! KeyError",
        "a sets {'paid': True}",
    ]
    assert lines_of(await talk.say("and now?")) == ["a: what next?"]
    assert shown(model.requests[-1]) == [
        "user: go",
        "model: breaks()",
        "model: goes_on()",
        "user: breaks -> {'error': \"Tool 'breaks' raised KeyError: 'no such thing'\"}",
        "user: goes_on -> {'result': 'paid'}",
        "user: and now?",
    ]


async def test_a_result_that_json_cannot_hold_ends_the_run_with_an_error_that_says_where() -> None:
    def strange() -> dict[str, Any]:
        return {"a": [object()]}

    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("strange")]), tools=[strange]))
    with pytest.raises(ToolError, match=r"Tool 'strange': result\['a'\]\[0\] is of type object"):
        await talk.say("go")
    assert lines_of(await talk.log())[-1] == "a ! ToolError"


@pytest.mark.parametrize(
    ("result", "response"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        (None, {"result": None}),
        ("text", {"result": "text"}),
        ([1, 2], {"result": [1, 2]}),
        (0, {"result": 0}),
    ],
)
async def test_what_is_not_a_map_is_wrapped_as_the_result(result: object, response: dict[str, Any]) -> None:
    def give() -> Any:
        return result

    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("give"), "ok"]), tools=[give]))
    (_, event, _) = await talk.say("go")
    assert event.get_function_responses()[0].response == response


async def test_state_written_side_by_side_is_merged_key_by_key() -> None:
    def write(key: str, value: int, tool_context: ToolContext) -> str:
        tool_context.state["scores"] = {key: value, "last": value}
        tool_context.state[key] = value
        return key

    model = ScriptedModel([[call("write", key="x", value=1), call("write", key="y", value=2)], "done"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[write]))
    _, responses, _ = await talk.say("go", run_config=RunConfig(tool_execution_mode="SEQUENTIAL"))
    assert responses.actions.state_delta == {"scores": {"x": 1, "y": 2, "last": 2}, "x": 1, "y": 2}
    assert await talk.state() == {"scores": {"x": 1, "y": 2, "last": 2}, "x": 1, "y": 2}


async def test_what_calls_side_by_side_ask_for_is_on_their_one_event_and_a_later_call_counts() -> None:
    async def first(tool_context: ToolContext) -> str:
        """Goes first."""
        await tool_context.save_artifact("f", Part(text="1"))
        await tool_context.save_artifact("g", Part(text="1"))
        tool_context.actions.transfer_to_agent = "first"
        tool_context.actions.deleted_artifact_ids = ["x"]
        tool_context.actions.render_ui_widgets = [{"id": 1}]
        return "one"

    async def second(tool_context: ToolContext) -> str:
        """Goes second."""
        await tool_context.save_artifact("f", Part(text="2"))
        tool_context.actions.transfer_to_agent = "second"
        tool_context.actions.escalate = tool_context.actions.skip_summarization = True
        tool_context.actions.deleted_artifact_ids = ["y"]
        tool_context.actions.render_ui_widgets = [{"id": 2}]
        return "two"

    model = ScriptedModel([[call("first", "c-1"), call("second", "c-2")]])
    talk = Talk(LlmAgent(name="a", model=model, tools=[first, second]))
    await talk.say("go", run_config=RunConfig(tool_execution_mode="SEQUENTIAL"))
    assert (await talk.log())[-1].actions == EventActions(
        artifact_delta={"f": 1, "g": 0},
        transfer_to_agent="second",
        escalate=True,
        skip_summarization=True,
        deleted_artifact_ids=["x", "y"],
        render_ui_widgets=[{"id": 1}, {"id": 2}],
    )


async def test_a_tool_can_end_the_run_after_its_response() -> None:
    def stop(tool_context: ToolContext) -> str:
        """Stops."""
        tool_context.invocation_context.end_invocation = True
        return "stopped"

    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("stop", "c-1"), "Again."]), tools=[stop]))
    assert lines_of(await talk.say("go")) == ["a: stop()", "a: stop -> {'result': 'stopped'}"]
    assert lines_of(await talk.say("again")) == ["a: Again."]


async def test_the_arguments_that_a_tool_changes_are_its_own() -> None:
    def spoil(items: list[int]) -> int:
        items.clear()
        return len(items)

    model = ScriptedModel([call("spoil", "c-1", items=[1, 2]), "done"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[spoil]))
    (event, _, _) = await talk.say("go")
    assert event.get_function_calls() == [FunctionCall(id="c-1", name="spoil", args={"items": [1, 2]})]


async def test_a_tool_that_skips_the_summary_has_the_last_word() -> None:
    def quiet(tool_context: ToolContext) -> str:
        tool_context.actions.skip_summarization = True
        return "that is all"

    model = ScriptedModel([call("quiet")])
    assert lines_of(await Talk(LlmAgent(name="a", model=model, tools=[quiet])).say("go")) == [
        "a: quiet()",
        "a: quiet -> {'result': 'that is all'}",
    ]


async def test_artifacts_saved_by_tools_are_on_the_event_and_can_be_read_again() -> None:
    async def save(text: str, tool_context: ToolContext) -> dict[str, Any]:
        version = await tool_context.save_artifact("note.txt", Part(text=text))
        loaded = await tool_context.load_artifact("note.txt")
        return {"version": version, "text": loaded and loaded.text, "all": await tool_context.list_artifacts()}

    model = ScriptedModel([call("save", text="one"), call("save", text="two"), "saved"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[save])).say("go")
    assert [lines_of([event])[0] for event in (events[1], events[3])] == [
        "a: save -> {'version': 0, 'text': 'one', 'all': ['note.txt']}",
        "a: save -> {'version': 1, 'text': 'two', 'all': ['note.txt']}",
    ]
    assert [events[1].actions.artifact_delta, events[3].actions.artifact_delta] == [{"note.txt": 0}, {"note.txt": 1}]


async def test_calls_know_their_id_and_have_a_key_of_their_own() -> None:
    keys: list[tuple[str | None, str]] = []

    def note(word: str, tool_context: ToolContext) -> None:
        keys.append((tool_context.function_call_id, tool_context.idempotency_key))

    model = ScriptedModel([[call("note", "c-1", word="x"), call("note", "c-2", word="x")], "done"])
    await Talk(LlmAgent(name="a", model=model, tools=[note])).say("go")
    assert sorted(call_id or "" for call_id, _ in keys) == ["c-1", "c-2"]
    assert len({key for _, key in keys}) == 2


class Twice(BaseTool):
    def __init__(self) -> None:
        super().__init__(name="twice", description="Doubles.")

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> int:
        return int(args["number"]) * 2


class Box(BaseToolset):
    def __init__(self) -> None:
        super().__init__(tool_filter=["ping"])
        self.closed = False

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        def hidden() -> None: ...

        return [FunctionTool(ping), FunctionTool(hidden)]

    async def close(self) -> None:
        self.closed = True


async def test_toolsets_give_the_tools_that_their_filter_lets_through_and_are_closed_with_the_runner() -> None:
    box = Box()
    model = ScriptedModel([[call("ping", name="x"), call("hidden")], "done"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[box]))
    assert lines_of(await talk.say("go"))[2:] == [
        "a: ping -> {'result': 'pong x'}",
        "a: hidden -> {'error': \"There is no tool 'hidden'. Tools that exist: ping.\"}",
        "a: done",
    ]
    await talk.runner.close()
    assert box.closed


async def test_a_tool_without_a_declaration_is_no_tool_for_the_model() -> None:
    model = ScriptedModel([call("twice", number=2), "done"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[Twice()])).say("go")
    assert lines_of(events)[1] == "a: twice -> {'error': \"There is no tool 'twice'. Tools that exist: none.\"}"


async def test_state_written_by_a_call_that_stays_open_is_not_lost() -> None:
    def start(tool_context: ToolContext) -> None:
        tool_context.state["started"] = True

    model = ScriptedModel([[call("start", "c-1"), call("ping", name="x")], "under way"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(start), ping]))
    await talk.say("go")
    assert await talk.state() == {"started": True}

    alone = Talk(
        LlmAgent(name="a", model=ScriptedModel([call("start", "c-1")]), tools=[LongRunningFunctionTool(start)])
    )
    assert lines_of(await alone.say("go")) == ["a: start()", "a sets {'started': True}"]
    assert await alone.state() == {"started": True}


# pictures and sounds


PNG = Blob(data=b"png", mime_type="image/png", display_name="a.png")
SONG = FileData(file_uri="gs://songs/a.wav", mime_type="audio/wav")


@pytest.mark.parametrize(
    ("returned", "response", "media"),
    [
        (Part(inline_data=PNG), {"result": None}, [PNG]),
        (PNG, {"result": None}, [PNG]),
        ([Part(inline_data=PNG), Part(file_data=SONG)], {"result": None}, [PNG, SONG]),
        (["see", Part(inline_data=PNG)], {"result": ["see"]}, [PNG]),
        ({"plot": Part(inline_data=PNG), "title": "May"}, {"title": "May"}, [PNG]),
        ({"pages": [{"number": 1, "scan": PNG}]}, {"pages": [{"number": 1}]}, [PNG]),
        ({"pages": ({"scan": SONG}, 2)}, {"pages": [{}, 2]}, [SONG]),
        ([Part(text="just words")], {"result": [{"text": "just words"}]}, []),
    ],
)
async def test_media_that_a_tool_returns_are_shown_to_the_model_and_not_spelt_out(
    returned: Any, response: JsonObject, media: list[Blob | FileData]
) -> None:
    def look() -> Any:
        return returned

    model = ScriptedModel([call("look", "c-1"), "I see."])
    talk = Talk(LlmAgent(name="a", model=model, tools=[look]))
    await talk.say("look")
    for (stored,) in (
        (await talk.log())[2].get_function_responses(),
        [p.function_response for p in model.requests[1].contents[-1].parts or () if p.function_response is not None],
    ):
        assert stored.response == response
        assert [part.inline_data or part.file_data for part in stored.parts or ()] == media
        assert stored.parts != []
        assert wire.from_plain(wire.to_plain(stored), FunctionResponse) == stored


async def test_a_result_that_holds_itself_is_a_tool_error() -> None:
    def loop() -> Any:
        result: list[Any] = [PNG]
        result.insert(0, result)
        return result

    agent = LlmAgent(name="a", model=ScriptedModel([call("loop", "c-1")]), tools=[loop])
    with pytest.raises(ToolError, match="a reference back to one of its containers"):
        await Talk(agent).say("loop")


async def test_other_agents_are_shown_the_media_too() -> None:
    model = ScriptedModel(
        {"root": [call("look"), call("transfer_to_agent", agent_name="leaf")], "leaf": ["I see it, too."]}
    )

    def look() -> Part:
        return Part(inline_data=PNG)

    leaf = LlmAgent(name="leaf")
    await Talk(LlmAgent(name="root", model=model, tools=[look], sub_agents=[leaf])).say("look")
    told_to_leaf = [part for content in model.requests[-1].contents for part in content.parts or ()]
    assert PNG in [part.inline_data for part in told_to_leaf]


# which tools there are


class SmallToolset(BaseToolset):
    """Two tools."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        def take() -> str:
            """Takes a book off the shelf."""
            return "from the shelf"

        def put() -> str:
            """Puts a book onto the shelf."""
            return "on the shelf"

        return [FunctionTool(take), FunctionTool(put)]


async def test_of_two_tools_of_one_name_the_later_is_declared_once_and_called() -> None:
    def take() -> str:
        """Takes something."""
        return "from somewhere"

    model = ScriptedModel([call("take"), "taken"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[take, SmallToolset()])).say("take")
    assert lines_of(events)[1] == "a: take -> {'result': 'from the shelf'}"
    declared = [d for d in model.requests[0].function_declarations() if d.name == "take"]
    assert [d.description for d in declared] == ["Takes a book off the shelf."]


@pytest.mark.parametrize(
    ("tool_filter", "names"),
    [
        (None, ["take", "put"]),
        ([], ["take", "put"]),
        (["put"], ["put"]),
        (lambda tool, context: context.agent_name == "a" and tool.name == "take", ["take"]),
    ],
)
async def test_a_toolset_offers_what_its_filter_lets_through(tool_filter: Any, names: list[str]) -> None:
    model = ScriptedModel(["hi"])
    await Talk(LlmAgent(name="a", model=model, tools=[SmallToolset(tool_filter=tool_filter)])).say("hi")
    assert [d.name for d in model.requests[0].function_declarations()] == names


async def test_the_responses_and_the_error_of_a_tool_that_raises_are_one_event() -> None:
    def breaks() -> None:
        raise KeyError("no such thing")

    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("breaks", "c-1")]), tools=[breaks]))
    with pytest.raises(KeyError):
        await talk.say("go")
    *_, calling, last = await talk.log()
    assert [one.name for one in calling.get_function_calls()] == ["breaks"]
    assert [one.id for one in last.get_function_responses()] == ["c-1"]
    assert (last.error_code, last.error_message) == ("KeyError", "'no such thing'")
    assert last.custom_metadata is None


class Order(pydantic.BaseModel):
    amount: int


def deep() -> JsonObject:
    value: JsonObject = {}
    for _ in range(100_000):
        value = {"in": value}
    return value


async def test_records_in_the_state_are_stored_as_their_data() -> None:
    def order(tool_context: ToolContext) -> str:
        tool_context.state["order"] = Order(amount=5)
        return "ordered"

    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("order", "c-1"), "done"]), tools=[order]))
    await talk.say("go")
    assert (await talk.state())["order"] == {"amount": 5}


async def test_records_that_a_callback_puts_into_the_state_are_stored_as_their_data() -> None:
    def order(callback_context: CallbackContext) -> None:
        callback_context.state["order"] = [Order(amount=5)]

    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["done"]), before_agent_callback=order))
    assert lines_of(await talk.say("go"))[-1] == "a: done"
    assert (await talk.state())["order"] == [{"amount": 5}]


@pytest.mark.parametrize("unfit", [object(), "\ud800", deep()], ids=["object", "surrogate", "deep"])
@pytest.mark.parametrize("where", ["state", "result"])
async def test_what_can_not_be_stored_is_the_tools_error_and_its_call_is_closed(unfit: object, where: str) -> None:
    def breaks(tool_context: ToolContext) -> object:
        if where == "state":
            tool_context.state["unfit"] = unfit
            return "fine"
        return unfit

    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("breaks", "c-1"), "well"]), tools=[breaks]))
    with pytest.raises(ToolError, match="Tool 'breaks'"):
        await talk.say("go")
    last = (await talk.log())[-1]
    assert ([one.id for one in last.get_function_responses()], last.error_code) == (["c-1"], "ToolError")
    assert "unfit" not in await talk.state()
    assert lines_of(await talk.say("and now?")) == ["a: well"]
