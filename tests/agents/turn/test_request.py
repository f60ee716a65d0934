"""The system text of a request: templates, providers, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.base_llm_agent import Instruction
from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.content import INSTRUCTIONS_PREFIX, Content, Part
from greenroom.records.run import RunConfig
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk, call, lines_of, shown

STATE: JsonObject = {
    "name": "Ada",
    "count": 3,
    "tags": ["a", "b"],
    "empty": "",
    "app:shop": "The Shop",
    "user:home": "Oslo",
    "nested": "{name}",
}


async def system_text(instruction: Instruction, *, state: JsonObject | None = None) -> str:
    """The resolved instruction, without the line that names the agent."""
    model = ScriptedModel(["ok"])
    talk = Talk(LlmAgent(name="a", model=model, instruction=instruction), state=STATE if state is None else state)
    await talk.say("hi")
    text, _, identity = model.requests[0].config.system_text().rpartition("\n\n")
    assert identity == 'You are the agent "a".'
    return text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Hello {name}.", "Hello Ada."),
        ("{ name }, {{name}}", "Ada, Ada"),
        ("{count} of {tags}", "3 of ['a', 'b']"),
        ("In {app:shop} from {user:home}", "In The Shop from Oslo"),
        ("[{missing?}][{user:missing?}][{empty}]", "[][][]"),
        ("{nested}", "{name}"),
        ('Answer as {"city": "Oslo"} or {"a": {"b": [1]}}', 'Answer as {"city": "Oslo"} or {"a": {"b": [1]}}'),
        ("{} { } {1abc} {not a name} {x:y} {a.b}", "{} { } {1abc} {not a name} {x:y} {a.b}"),
        ("${name} and \\{name}", "${name} and {name}"),
        ("Copy \\{{name}}, \\{artifact.plan} and {name}", "Copy {{name}}, {artifact.plan} and Ada"),
        ("A regular expression: \\{1,2} \\{a b} {name\\}", "A regular expression: \\{1,2} \\{a b} {name\\}"),
        ("no variables", "no variables"),
    ],
)
async def test_variables_are_filled_in_and_all_other_braces_survive(template: str, text: str) -> None:
    assert await system_text(template) == text


async def test_a_variable_that_is_not_there_fails_the_run_and_is_named() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([]), instruction="Hello {user:nick}."))
    with pytest.raises(AgentConfigError, match=r"'a' needs \{user:nick\}"):
        await talk.say("hi")
    assert lines_of(await talk.log()) == ["user: hi", "a ! MissingVariable"]


async def test_temp_state_of_this_run_is_there_and_that_of_the_last_is_not() -> None:
    model = ScriptedModel(["one", "two"])
    talk = Talk(LlmAgent(name="a", model=model, instruction="[{temp:mood?}]"))
    await talk.say("hi", state_delta={"temp:mood": "gay"})
    await talk.say("hi")
    assert [request.config.system_text().split("\n")[0] for request in model.requests] == ["[gay]", "[]"]


async def test_state_written_in_a_turn_is_in_the_next_request_of_that_turn() -> None:
    def set_step(step: str, tool_context: object) -> None:
        tool_context.state["step"] = step  # pyright: ignore[reportAttributeAccessIssue]

    model = ScriptedModel([call("set_step", step="two"), "done"])
    talk = Talk(LlmAgent(name="a", model=model, instruction="Step {step?}", tools=[set_step]))
    await talk.say("hi")
    assert [r.config.system_text().split("\n")[0] for r in model.requests] == ["Step ", "Step two"]


async def test_artifacts_are_filled_in_with_their_newest_text() -> None:
    model = ScriptedModel(["ok"])
    talk = Talk(
        LlmAgent(name="a", model=model, instruction="{artifact.rules.txt}|{artifact.more.txt?}|{artifact.raw.txt}")
    )
    artifacts = talk.runner.artifact_service
    assert artifacts is not None
    for filename, part in (
        ("rules.txt", Part(text="old")),
        ("rules.txt", Part(text="Be {kind}.")),
        ("raw.txt", Part.from_bytes(data=b"raw", mime_type="text/plain")),
    ):
        await artifacts.save_artifact(app_name="app", user_id="ada", session_id="s-1", filename=filename, artifact=part)
    await talk.say("hi")
    assert model.requests[0].config.system_text().split("\n")[0] == "Be {kind}.||raw"


async def test_an_artifact_that_is_not_there_is_named() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([]), instruction="{artifact.rules.txt}"))
    with pytest.raises(AgentConfigError, match=r"rules\.txt"):
        await talk.say("hi")


async def test_artifacts_without_a_store_for_them_are_an_error_of_the_agent() -> None:
    agent = LlmAgent(name="a", model=ScriptedModel([]), instruction="{artifact.rules.txt?}")
    runner = Runner(agent=agent, session_service=InMemorySessionService())
    message, config = Content(parts=[Part(text="hi")]), RunConfig(auto_create_session=True)
    with pytest.raises(AgentConfigError, match="no artifact service"):
        async for _ in runner.run_async(user_id="ada", session_id="s-1", new_message=message, run_config=config):
            pass


async def test_the_text_of_a_function_is_taken_as_it_is() -> None:
    def provide(context: ReadonlyContext) -> str:
        return f"{context.agent_name} for {context.state['name']}: {{name}} {{missing}}"

    async def provide_later(context: ReadonlyContext) -> str:
        return provide(context)

    assert await system_text(provide) == "a for Ada: {name} {missing}"
    assert await system_text(provide_later) == "a for Ada: {name} {missing}"


async def test_instruction_functions_cannot_write_state() -> None:
    def provide(context: ReadonlyContext) -> str:
        context.state["x"] = 1  # pyright: ignore[reportIndexIssue]
        return ""

    with pytest.raises(TypeError):
        await system_text(provide)


async def test_what_is_stable_comes_first_and_who_the_agent_is_last() -> None:
    model = ScriptedModel({"root": [call("transfer_to_agent", agent_name="leaf")], "leaf": ["hello"]})
    leaf = LlmAgent(
        name="leaf",
        description="Says hello.",
        instruction="For {name}.",
        global_instruction="Of no effect below the root.",
        disallow_transfer_to_parent=True,
        disallow_transfer_to_peers=True,
    )
    root = LlmAgent(name="root", model=model, global_instruction="Everybody knows {name}.", sub_agents=[leaf])
    await Talk(root, state={"name": "Ada"}).say("hi")
    assert model.requests[1].config.system_text().split("\n\n") == [
        "Everybody knows Ada.",
        "For Ada.",
        'You are the agent "leaf". This is what you are for: Says hello.',
    ]


HEAD = f"user: {INSTRUCTIONS_PREFIX}"


def order(dish: str, tool_context: ToolContext) -> str:
    tool_context.state["dish"] = dish
    return "ordered"


async def test_beside_a_static_instruction_the_other_one_stands_before_the_newest_messages() -> None:
    """So the system text, and all contents of earlier turns, are the same in every request."""
    model = ScriptedModel(["What may it be?", call("order", dish="soup"), "Soup it is.", "Of course."])
    agent = LlmAgent(
        name="waiter",
        model=model,
        tools=[order],
        static_instruction="You wait {tables}.",
        instruction="Ordered: {dish?}.",
        global_instruction="Be kind.",
    )
    talk = Talk(agent)
    await talk.say("hello")
    await talk.say("soup")
    await talk.say("and bread?")
    system = 'Be kind.\n\nYou wait {tables}.\n\nYou are the agent "waiter".'
    assert {request.config.system_text() for request in model.requests} == {system}
    first = ["user: hello", "model: What may it be?"]
    second = ["user: soup", "model: order(dish='soup')", "user: order -> {'result': 'ordered'}"]
    nothing = [HEAD, "user: <instructions>\nOrdered: .\n</instructions>"]
    soup = [HEAD, "user: <instructions>\nOrdered: soup.\n</instructions>"]
    assert [shown(request) for request in model.requests] == [
        [*nothing, "user: hello"],
        [*first, *nothing, "user: soup"],
        [*first, *second, *soup],
        [*first, *second, "model: Soup it is.", *soup, "user: and bread?"],
    ]
    assert INSTRUCTIONS_PREFIX not in str(lines_of(await talk.log()))


async def test_messages_in_a_row_stay_together_behind_the_instruction() -> None:
    model = ScriptedModel([ModelError("down", model="m"), "at last"])
    talk = Talk(LlmAgent(name="a", model=model, static_instruction="Wait.", instruction="Be short."))
    with pytest.raises(ModelError):
        await talk.say("one")
    await talk.say("two")
    assert shown(model.requests[-1])[2:] == ["user: one", "user: two"]


async def test_a_static_instruction_alone_adds_no_content() -> None:
    model = ScriptedModel(["hi"])
    await Talk(LlmAgent(name="a", model=model, static_instruction="Wait.")).say("one")
    assert shown(model.requests[0]) == ["user: one"]


TEXT = Part(text="one, ")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("plain {x}", "plain {x}"),
        (TEXT, "one, "),
        (Content(parts=[TEXT, Part(text="two")]), "one, two"),
        (["first", TEXT, Content(parts=[Part(text="two")])], "first\n\none, \n\ntwo"),
    ],
)
async def test_forms_of_a_static_instruction(given: Any, text: str) -> None:
    model = ScriptedModel(["hi"])
    await Talk(LlmAgent(name="a", model=model, static_instruction=given)).say("hello")
    assert model.requests[0].config.system_text() == f'{text}\n\nYou are the agent "a".'


async def test_media_of_a_static_instruction_come_before_all_messages() -> None:
    logo = Part.from_bytes(data=b"x", mime_type="image/png")
    model = ScriptedModel(["hi"])
    await Talk(LlmAgent(name="a", model=model, static_instruction=["This is our logo:", logo])).say("hello")
    request = model.requests[0]
    assert "attachment 1 of the instructions" in request.config.system_text()
    first, message = request.contents
    assert first == Content(role="user", parts=[Part(text="attachment 1 of the instructions:"), logo])
    assert message.text() == "hello"


@pytest.mark.parametrize("given", [Part.from_function_call(name="f", args={}), Part(text="hm", thought=True)])
def test_a_static_instruction_holds_only_text_and_media(given: Part) -> None:
    with pytest.raises(AgentConfigError, match=r"Agent 'a': .*only text, data and files"):
        LlmAgent(name="a", static_instruction=["fine", given])
