"""Code in a model's replies: what is run, what becomes of its result, and what the model is shown of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.executor import (
    BaseCodeExecutor,
    BuiltInCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
)
from greenroom.code_executors.unsafe_local import UnsafeLocalCodeExecutor
from greenroom.environments.files import File
from greenroom.errors import AgentConfigError, ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.tool_declaration import Tool
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, Talk, call, shown

FENCED = "Let me see.\n```python\nprint(6 * 7)\n```\nIt must be 42."


def coder(model: ScriptedModel, executor: BaseCodeExecutor | None = None, **more: Any) -> Talk:
    return Talk(LlmAgent(name="coder", model=model, code_executor=executor or UnsafeLocalCodeExecutor(), **more))


def lines(events: list[Event]) -> list[str]:
    """Text, code and results of each event, partial ones left out."""
    found: list[str] = []
    for event in events:
        for part in (event.content.parts if event.content and not event.partial else None) or ():
            if part.executable_code is not None:
                found.append(f"runs {part.executable_code.code}")
            elif part.code_execution_result is not None:
                found.append(f"{part.code_execution_result.outcome}: {part.code_execution_result.output}")
            else:
                found.append(part.text or "?")
    return found


def user(*parts: Part) -> Content:
    return Content(role="user", parts=list(parts))


def table(text: str) -> Part:
    return Part.from_bytes(data=text.encode(), mime_type="text/csv")


async def test_code_is_cut_out_run_and_shown_to_the_model_with_its_result() -> None:
    model = ScriptedModel([FENCED, "It is 42."])
    talk = coder(model)
    events = await talk.say("6 times 7?")
    assert lines(events) == [
        "Let me see.\n",
        "runs print(6 * 7)",
        "OUTCOME_OK: Code execution result:\n42\n\n",
        "It is 42.",
    ]
    said, result, last = events
    assert [event.content and event.content.role for event in events] == ["model"] * 3
    assert [event.is_final_response() for event in (result, last)] == [False, True]
    assert said.content is not None
    code = (said.content.parts or [])[-1].executable_code
    assert code is not None
    assert code.language == "PYTHON"
    assert shown(model.requests[1]) == [
        "user: 6 times 7?",
        "model: Let me see.\n",
        "model: ```tool_code\nprint(6 * 7)\n```",
        "user: ```tool_output\nCode execution result:\n42\n\n\n```",
    ]
    assert await talk.log() == [(await talk.log())[0], *events]


async def test_what_was_run_is_in_the_state_while_the_run_lasts() -> None:
    seen: list[Any] = []

    def look(callback_context: CallbackContext) -> None:
        seen.append(callback_context.state["_code_execution_results"])

    talk = coder(ScriptedModel([FENCED, "It is 42."], loop=True), after_agent_callback=look)
    await talk.say("6 times 7?")
    events = await talk.say("And again?")
    (entry,) = seen[-1][events[0].invocation_id]
    assert list(seen[-1]) == [events[0].invocation_id]
    assert (entry["code"], entry["result_stdout"], entry["result_stderr"]) == ("print(6 * 7)", "42\n", "")
    assert events[1].timestamp - 5 < entry["timestamp"] <= events[1].timestamp
    assert events[1].actions.state_delta == await talk.state() == {"_code_execution_context": {}}


async def test_a_streamed_reply_is_replaced_by_what_was_kept_of_it() -> None:
    events = await coder(ScriptedModel([FENCED, "It is 42."])).say("6 times 7?", run_config=STREAMED)
    whole = next(event for event in events if not event.partial)
    chunks = [event for event in events if event.partial and event.id == whole.id]
    assert "".join(event.content.text() for event in chunks if event.content) == FENCED
    assert lines(events)[1:3] == ["runs print(6 * 7)", "OUTCOME_OK: Code execution result:\n42\n\n"]


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("```tool_code\nprint(1)\n```", ["runs print(1)"]),
        ("```python\nprint(1)\n```\n```tool_code\nprint(2)\n```", ["runs print(1)"]),
        (
            [Part(text="hm", thought=True), Part(text="```python\npri"), Part(text="nt(1)\n```")],
            ["hm", "runs print(1)"],
        ),
        (
            [Part(text="So: "), Part.from_executable_code(code="print(1)"), Part(text="Done.")],
            ["So: ", "runs print(1)"],
        ),
        ([Part(text="```python\nprint(1)\n```"), call("never_called")], ["runs print(1)"]),
    ],
)
async def test_the_first_code_counts_and_nothing_behind_it(reply: Any, kept: list[str]) -> None:
    said = [reply] if isinstance(reply, str) else [list(reply)]
    events = await coder(ScriptedModel([*said, "Done."])).say("go")
    assert lines(events) == [*kept, "OUTCOME_OK: Code execution result:\n1\n\n", "Done."]


@pytest.mark.parametrize(
    "reply",
    [
        "```javascript\nalert(1)\n```",
        "```python\nprint(1)",
        [Part(text="```python\nprint(1)\n```", thought=True), Part(text="No.")],
        [
            Part.from_executable_code(code="print(1)"),
            Part.from_code_execution_result(outcome="OUTCOME_OK", output="1"),
            Part(text="One."),
        ],
    ],
)
async def test_what_is_no_code_to_run_is_left_as_it_is(reply: Any) -> None:
    said: Any = reply if isinstance(reply, str) else LlmResponse(content=Content(role="model", parts=reply))
    (event,) = await coder(ScriptedModel([said])).say("go")
    assert event.content is not None
    assert event.content.parts == ([Part(text=reply)] if isinstance(reply, str) else reply)


async def test_calls_before_code_are_made_and_the_code_is_not_run() -> None:
    def price() -> int:
        """Says a price."""
        return 3

    model = ScriptedModel([[call("price", "c-1"), Part(text="```python\nprint(1)\n```")], "Three."])
    events = await coder(model, tools=[price]).say("go")
    assert [event.get_function_responses() != [] for event in events] == [False, True, False]


async def test_code_that_fails_is_shown_its_error_and_after_two_failures_the_next_reply_is_the_last() -> None:
    broken = "```python\nprint('half')\nraise ValueError('no such city')\n```"
    model = ScriptedModel([broken, broken, broken])
    talk = coder(model)
    events = await talk.say("go")
    assert len(model.requests) == 3
    found = lines(events)
    for result in (found[1], found[3]):
        assert result.startswith("OUTCOME_FAILED: Output before the failure:\nhalf\n\nTraceback")
        assert result.endswith("ValueError: no such city")
    assert found[4] == broken
    assert (await talk.state())["_code_executor_error_counts"] == {events[0].invocation_id: 2}


async def test_a_success_in_between_begins_the_count_again() -> None:
    broken, good = "```python\n1 / 0\n```", "```python\nprint(1)\n```"
    model = ScriptedModel([broken, good, broken, good, "Done."])
    talk = coder(model)
    events = await talk.say("go")
    assert [line.partition(":")[0] for line in lines(events)][1:8:2] == ["OUTCOME_FAILED", "OUTCOME_OK"] * 2
    assert (await talk.state())["_code_executor_error_counts"] == {}


async def test_no_code_is_run_when_no_failure_is_allowed() -> None:
    (event,) = await coder(ScriptedModel([FENCED]), UnsafeLocalCodeExecutor(error_retry_attempts=0)).say("go")
    assert event.content == Content(role="model", parts=[Part(text=FENCED)])


async def test_the_delimiters_are_the_executors() -> None:
    executor = UnsafeLocalCodeExecutor(
        code_block_delimiters=[("<run>", "</run>")], execution_result_delimiters=("<out>", "</out>")
    )
    model = ScriptedModel(["<run>print('hi')</run>", "Done."])
    events = await coder(model, executor).say("```python\nprint(0)\n```")
    assert lines(events) == ["runs print('hi')", "OUTCOME_OK: Code execution result:\nhi\n\n", "Done."]
    assert shown(model.requests[1])[1:] == [
        "model: <run>print('hi')</run>",
        "user: <out>Code execution result:\nhi\n\n</out>",
    ]


async def test_the_output_key_gets_the_answer_and_not_what_stands_before_code() -> None:
    talk = coder(ScriptedModel([FENCED, "It is 42."]), output_key="answer")
    events = await talk.say("go")
    assert ["answer" in event.actions.state_delta for event in events] == [False, False, True]
    assert (await talk.state())["answer"] == "It is 42."


async def test_files_that_code_writes_are_artifacts() -> None:
    talk = coder(ScriptedModel(["```python\nopen('plot.png', 'wb').write(b'png')\n```", "Drawn."]))
    events = await talk.say("draw")
    assert lines(events)[1].endswith("Saved artifacts:\n`plot.png`")
    assert events[1].actions.artifact_delta == {"plot.png": 0}
    service = talk.runner.artifact_service
    assert service is not None
    saved = await service.load_artifact(app_name="app", user_id="ada", session_id="s-1", filename="plot.png")
    assert saved is not None
    assert saved.inline_data is not None
    assert (saved.inline_data.data, saved.inline_data.mime_type) == (b"png", "image/png")


async def test_max_steps_counts_replies_and_not_results() -> None:
    model = ScriptedModel([FENCED, FENCED, "Never said."])
    await coder(model, max_steps=2).say("go")
    assert len(model.requests) == 2


async def test_csv_files_are_kept_as_files_and_looked_at_once() -> None:
    model = ScriptedModel(["```python\nprint(open('data_1_2.csv').read()[-3:])\n```", "Seven.", "Still."])
    talk = coder(model, UnsafeLocalCodeExecutor(optimize_data_file=True))
    events = await talk.say(user(Part(text="Sum up."), table("a,b\n1,2\n3,7\n")))
    found = lines(events)
    assert found[0].startswith("runs import csv")
    assert found[1] == (
        "OUTCOME_OK: Code execution result:\nFile data_1_2.csv: 2 rows below the heading\n"
        "['a', 'b']\n['1', '2']\n['3', '7']\n\n"
    )
    assert found[3:] == ["OUTCOME_OK: Code execution result:\n,7\n\n\n", "Seven."]
    prompt = shown(model.requests[0])
    assert prompt[:2] == ["user: Sum up.", "user: Available file: `data_1_2.csv`"]
    assert prompt[3].startswith("user: ```tool_output\nCode execution result:\nFile data_1_2.csv")
    assert "`\n```tool_code\n" not in model.requests[0].config.system_text()
    assert "```tool_code" in model.requests[0].config.system_text()
    state = await talk.state()
    assert state["_code_executor_input_files"] == [
        {"name": "data_1_2.csv", "content": "YSxiCjEsMgozLDcK", "mime_type": "text/csv"}
    ]
    assert state["_code_execution_context"] == {"processed_input_files": ["data_1_2.csv"]}
    assert lines(await talk.say(user(table("a,b\n1,2\n3,7\n")))) == ["Still."]


async def test_csv_files_of_two_messages_have_names_of_their_own() -> None:
    model = ScriptedModel(["One.", "Two."])
    agent = LlmAgent(
        name="coder",
        model=model,
        code_executor=UnsafeLocalCodeExecutor(optimize_data_file=True),
        include_contents="none",
    )
    talk = Talk(agent)
    await talk.say(user(table("a\n1\n")))
    await talk.say(user(table("b\n2\n")))
    assert [file["name"] for file in (await talk.state())["_code_executor_input_files"]] == [
        "data_1_1.csv",
        "data_1_1_2.csv",
    ]


class Noting(BaseCodeExecutor):
    """A plain function, as executors of ADK are; notes what it is given."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.given: list[CodeExecutionInput] = []
        self.result: CodeExecutionResult | None = None
        self.is_closed = False

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        self.given.append(code_execution_input)
        return self.result or CodeExecutionResult(stdout=f"for {invocation_context.agent.name}")

    async def close(self) -> None:
        self.is_closed = True


async def test_an_executor_may_be_a_plain_function_and_is_closed_with_the_runner() -> None:
    executor = Noting()
    talk = coder(ScriptedModel([FENCED, "Done."]), executor)
    assert lines(await talk.say("go"))[2] == "OUTCOME_OK: Code execution result:\nfor coder\n"
    assert executor.given == [CodeExecutionInput(code="print(6 * 7)", input_files=[], execution_id=None)]
    await talk.runner.close()
    assert executor.is_closed


async def test_an_executor_allows_two_failures_and_has_no_time_limit_by_default() -> None:
    executor = Noting()
    executor.result = CodeExecutionResult(stderr="no")
    talk = coder(ScriptedModel([FENCED, FENCED, FENCED, "more"]), executor)
    assert len([line for line in lines(await talk.say("go")) if line.startswith("OUTCOME_FAILED")]) == 2
    assert len(executor.given) == 2
    assert executor.timeout_seconds is None


async def test_a_file_without_a_type_is_text() -> None:
    executor = Noting()
    executor.result = CodeExecutionResult(output_files=[File(name="a", content=b"A")])
    talk = coder(ScriptedModel([FENCED, "Done."]), executor)
    await talk.say("go")
    store = talk.runner.artifact_service
    assert store is not None
    part = await store.load_artifact(app_name="app", user_id="ada", session_id="s-1", filename="a")
    assert part == Part.from_bytes(data=b"A", mime_type="text/plain")


async def test_code_cannot_write_artifacts_of_the_users_other_sessions() -> None:
    executor = Noting()
    names = ["user:profile.txt", "fine.txt", "x" * 2_000]
    executor.result = CodeExecutionResult(output_files=[File(name=name, content=b"A") for name in names])
    talk = coder(ScriptedModel([FENCED, "Done."]), executor)
    events = await talk.say("go")
    store = talk.runner.artifact_service
    assert store is not None
    assert await store.list_artifact_keys(app_name="app", user_id="ada", session_id="s-1") == ["fine.txt"]
    output = "\n".join(lines(events))
    assert "Saved artifacts:\n`fine.txt`" in output
    assert "not kept" in output
    assert "`user:profile.txt`" in output


@pytest.mark.parametrize("executor", [Noting, UnsafeLocalCodeExecutor])
async def test_csv_files_stay_in_the_message_unless_files_are_wanted(executor: type[BaseCodeExecutor]) -> None:
    model = ScriptedModel(["Three."])
    talk = coder(model, executor())
    given = user(table("a\n3\n"))
    assert lines(await talk.say(given)) == ["Three."]
    assert list(model.requests[0].contents) == [given]
    assert await talk.state() == {}


async def test_only_csv_of_the_user_becomes_a_file() -> None:
    drawn = LlmResponse(content=Content(role="model", parts=[Part(text="Here."), table("a\n1\n")]))
    model = ScriptedModel([drawn, "Thanks."])
    talk = coder(model, UnsafeLocalCodeExecutor(optimize_data_file=True))
    note = Part.from_bytes(data=b"{}", mime_type="application/json")
    await talk.say(user(note))
    assert lines(await talk.say("And?")) == ["Thanks."]
    assert [part for content in model.requests[1].contents for part in content.parts or ()][:3] == [
        note,
        Part(text="Here."),
        table("a\n1\n"),
    ]
    assert await talk.state() == {}


@pytest.mark.parametrize(
    ("reply", "run"),
    [
        ("```python\n1\n```\n```tool_code\n2\n```", "1"),
        ("```tool_code\n2\n```\n```python\n1\n```", "2"),
        ("```py\n0\n```\n```tool_code\n2\n```", "2"),
    ],
)
async def test_of_two_fences_the_earlier_is_run(reply: str, run: str) -> None:
    executor = Noting()
    await coder(ScriptedModel([reply, "Done."]), executor).say("go")
    assert [given.code for given in executor.given] == [run]


async def test_a_stateful_executor_is_given_the_sessions_id() -> None:
    executor = Noting(stateful=True)
    talk = coder(ScriptedModel([FENCED, "Done."]), executor)
    await talk.say("go")
    assert executor.given[0].execution_id == "s-1"
    assert (await talk.state())["_code_execution_context"] == {"execution_session_id": "s-1"}


class OutOfOrder(BaseCodeExecutor):
    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        raise ToolError("The sandbox is out of order")


class Failing(BaseCodeExecutor):
    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        return CodeExecutionResult(stderr="no")


async def test_any_executors_code_may_fail_twice_if_nothing_else_is_said() -> None:
    model = ScriptedModel([FENCED, FENCED, FENCED])
    events = await coder(model, Failing()).say("go")
    assert (len(model.requests), lines(events)[-1]) == (3, FENCED)


async def test_an_executor_that_cant_run_code_fails_the_run() -> None:
    talk = coder(ScriptedModel([FENCED]), OutOfOrder())
    with pytest.raises(ToolError, match="out of order"):
        await talk.say("go")
    assert [event.error_code for event in await talk.log()] == [None, None, "ToolError"]


async def test_the_built_in_executor_only_marks_requests_to_gemini() -> None:
    model = ScriptedModel([FENCED], model="gemini-2.5-flash")
    (event,) = await coder(model, BuiltInCodeExecutor()).say("go")
    assert event.content is not None
    assert event.content.text() == FENCED
    assert model.requests[0].config.tools == [Tool(code_execution={})]
    with pytest.raises(AgentConfigError, match="needs a Gemini model, which 'scripted' is not"):
        await coder(ScriptedModel([FENCED]), BuiltInCodeExecutor()).say("go")


async def test_images_that_the_model_drew_are_artifacts() -> None:
    parts = [
        Part.from_executable_code(code="plot()"),
        Part.from_code_execution_result(outcome="OUTCOME_OK", output=""),
        Part.from_bytes(data=b"png", mime_type="image/png"),
    ]
    said = LlmResponse(content=Content(role="model", parts=parts))
    talk = coder(ScriptedModel([said], model="gemini-2.5-flash"), BuiltInCodeExecutor())
    (event,) = await talk.say("draw")
    ((name, version),) = event.actions.artifact_delta.items()
    assert name.endswith(".png")
    assert version == 0
    assert event.content is not None
    assert (event.content.parts or [])[-1].text == f"Saved as the artifact `{name}`."


async def test_an_image_keeps_the_name_that_it_came_with() -> None:
    image = Part(inline_data=Blob(data=b"png", mime_type="image/png", display_name="sales.png"))
    said = LlmResponse(content=Content(role="model", parts=[image]))
    (event,) = await coder(ScriptedModel([said], model="gemini-2.5-flash"), BuiltInCodeExecutor()).say("draw")
    assert event.actions.artifact_delta == {"sales.png": 0}
    assert lines([event]) == ["Saved as the artifact `sales.png`."]


@pytest.mark.parametrize(
    "settings",
    [
        {"code_block_delimiters": []},
        {"execution_result_delimiters": ("", "x")},
        {"error_retry_attempts": -1},
        {"timeout_seconds": 0},
    ],
)
def test_settings_that_cant_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="UnsafeLocalCodeExecutor"):
        UnsafeLocalCodeExecutor(**settings)
