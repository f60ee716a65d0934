from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import PluginFailed
from greenroom.invocation.context import InvocationContext, Services
from greenroom.invocation.user_context import CallbackContext, ReadonlyContext
from greenroom.plugins.global_instruction import GlobalInstructionPlugin, InstructionProvider
from greenroom.records.content import Content, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.session import Session
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.plugins.watched import WatchedTalk


async def system_texts(instruction: str | InstructionProvider) -> list[str]:
    """Of a run in which one agent hands over to another."""
    model = ScriptedModel({"boss": [call("transfer_to_agent", agent_name="clerk")], "clerk": ["hello"]})
    clerk = LlmAgent(name="clerk", instruction="Be brief.", disallow_transfer_to_parent=True)
    boss = LlmAgent(name="boss", model=model, sub_agents=[clerk])
    await WatchedTalk(boss, GlobalInstructionPlugin(instruction), state={"shop": "Nook"}).say("hi")
    return [request.config.system_text() for request in model.requests]


async def test_every_agent_gets_it_before_its_own_instruction() -> None:
    first, second = await system_texts("You work for {shop}.")
    assert first.startswith('You work for Nook.\n\nYou are the agent "boss".')
    assert second == 'You work for Nook.\n\nBe brief.\n\nYou are the agent "clerk".'


async def test_a_providers_text_is_taken_as_it_is() -> None:
    async def later(ctx: ReadonlyContext) -> str:
        return f"{{shop}} of {ctx.user_id}"

    for provider in (later, lambda ctx: f"{{shop}} of {ctx.user_id}"):  # pyright: ignore[reportUnknownLambdaType]
        assert (await system_texts(provider))[1].startswith("{shop} of ada\n\nBe brief.")


async def test_a_missing_variable_fails_the_run_and_is_named() -> None:
    with pytest.raises(PluginFailed, match=r"'global_instruction' failed in before_model.*\{street\}"):
        await system_texts("In {street}.")


async def test_an_empty_text_changes_nothing() -> None:
    assert (await system_texts(""))[1].startswith("Be brief.")


async def test_an_instruction_of_several_parts_keeps_them() -> None:
    invocation = InvocationContext(
        services=Services(sessions=InMemorySessionService()),
        session=Session(id="s", app_name="app", user_id="ada"),
        invocation_id="e-1",
        agent=LlmAgent(name="a"),
    )
    instruction = Content(role="user", parts=[Part(text="one"), Part(text="two")])
    request = LlmRequest(config=GenerateContentConfig(system_instruction=instruction))
    await GlobalInstructionPlugin("zero").before_model_callback(
        callback_context=CallbackContext(invocation), llm_request=request
    )
    assert request.config.system_instruction == Content(
        role="user", parts=[Part(text="zero"), Part(text="one"), Part(text="two")]
    )
    assert instruction.parts == [Part(text="one"), Part(text="two")]
