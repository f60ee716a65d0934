"""The system text of a request: templates, providers, and their order."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import Instruction, LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk, call, told

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
    """What becomes of an instruction, without the line that says who the agent is."""
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
        ("${name} and \\{name}", "${name} and \\{name}"),
        ("no variables", "no variables"),
    ],
)
async def test_variables_are_filled_in_and_all_other_braces_survive(template: str, text: str) -> None:
    assert await system_text(template) == text


async def test_a_variable_that_is_not_there_fails_the_run_and_is_named() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([]), instruction="Hello {user:nick}."))
    with pytest.raises(AgentConfigError, match=r"'a' needs \{user:nick\}"):
        await talk.say("hi")
    assert told(await talk.log()) == ["user: hi", "a ! AgentConfigError"]


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
        static_instruction="Static {name}.",
        instruction="For {name}.",
        global_instruction="Of no effect below the root.",
        disallow_transfer_to_parent=True,
        disallow_transfer_to_peers=True,
    )
    root = LlmAgent(name="root", model=model, global_instruction="Everybody knows {name}.", sub_agents=[leaf])
    await Talk(root, state={"name": "Ada"}).say("hi")
    assert model.requests[1].config.system_text().split("\n\n") == [
        "Everybody knows Ada.",
        "Static {name}.",
        "For Ada.",
        'You are the agent "leaf". This is what you are for: Says hello.',
    ]
