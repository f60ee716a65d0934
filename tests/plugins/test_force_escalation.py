"""Consults that are forced, and tools that wait for one. Row 8.3."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.plugins.force_escalation import ForceEscalationPlugin
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.model_consult import ModelConsultTool
from tests.agents.human_input.approvals import decide, request_ids
from tests.agents.talk import call
from tests.plugins.watched import WatchedTalk

CONSULT, LOOK, SEND = call("model_consult", question="How?"), call("look", at="it"), call("send")
NEVER_FIRST = {"force_first_consult": False}


def look(at: str) -> str:
    return f"saw {at}"


def send() -> str:
    return "sent"


def talk(*script: Any, uses: int | None = None, tools: Any = (look, send), **options: Any) -> WatchedTalk:
    consult = ModelConsultTool(model=ScriptedModel(["Do this."], loop=True), max_uses=uses)
    agent = LlmAgent(name="a", model=ScriptedModel(list(script)), tools=[*tools, consult])
    return WatchedTalk(agent, ForceEscalationPlugin(**options))


def forced(conversation: WatchedTalk) -> list[bool]:
    """Whether each request of the agent forces the consult tool."""
    agent = conversation.runner.agent
    assert isinstance(agent, LlmAgent)
    assert isinstance(agent.model, ScriptedModel)
    return [_forces(request) for request in agent.model.requests]


def _forces(request: LlmRequest) -> bool:
    config = request.config.tool_config
    calling = config.function_calling_config if config is not None else None
    return calling is not None and (calling.mode, calling.allowed_function_names) == ("ANY", ["model_consult"])


def statuses(events: list[Event]) -> list[Any]:
    responses = [response for event in events for response in event.get_function_responses()]
    return [(response.name, (response.response or {}).get("status")) for response in responses]


async def test_the_first_step_of_each_run_is_a_consult() -> None:
    conversation = talk(CONSULT, "done", CONSULT, "done")
    await conversation.say("go")
    await conversation.say("go on")
    assert forced(conversation) == [True, False, True, False]


async def test_equal_calls_force_a_consult_and_count_again_after_it() -> None:
    conversation = talk(LOOK, LOOK, LOOK, CONSULT, LOOK, LOOK, LOOK, CONSULT, "done", **NEVER_FIRST)
    await conversation.say("go")
    assert forced(conversation) == [False, False, False, True, False, False, False, True, False]


async def test_other_arguments_are_another_call() -> None:
    conversation = talk(*(call("look", at=str(n)) for n in range(4)), "done", **NEVER_FIRST)
    await conversation.say("go")
    assert not any(forced(conversation))


async def test_no_more_are_forced_than_allowed() -> None:
    conversation = talk(*[LOOK] * 5, "done", force_on_repeat=1, max_forced=2)
    await conversation.say("go")
    assert forced(conversation) == [True, True, False, False, False, False]


async def test_nothing_is_forced_or_refused_without_consults_left() -> None:
    conversation = talk(CONSULT, LOOK, LOOK, SEND, "done", uses=1, force_on_repeat=2)
    await conversation.say("go")
    assert forced(conversation) == [True, False, False, False, False]


async def test_an_agent_without_the_tool_is_left_alone() -> None:
    agent = LlmAgent(name="a", model=ScriptedModel([SEND, "done"]), tools=[send])
    conversation = WatchedTalk(agent, ForceEscalationPlugin(require_consult_before=["send"]))
    assert statuses(await conversation.say("go")) == [("send", None)]
    assert forced(conversation) == [False, False]


async def test_a_tool_waits_for_a_consult_in_an_earlier_step() -> None:
    conversation = talk([CONSULT, SEND], SEND, "done", SEND, "done", require_consult_before=["send"], **NEVER_FIRST)
    assert statuses(await conversation.say("go")) == [
        ("model_consult", "ok"),
        ("send", "consult_required"),
        ("send", None),
    ]
    assert statuses(await conversation.say("again")) == [("send", None)]  # there was one in this session


async def test_a_model_that_does_not_listen_is_refused_a_few_times_only() -> None:
    conversation = talk(SEND, SEND, SEND, "done", require_consult_before=["send"], max_refusals=2, **NEVER_FIRST)
    assert [status for _, status in statuses(await conversation.say("go"))] == [
        "consult_required",
        "consult_required",
        None,
    ]


async def test_a_call_that_a_person_approved_is_not_refused() -> None:
    asking = FunctionTool(send, require_confirmation=True)
    options: dict[str, Any] = {"require_consult_before": ["send"], "max_refusals": 1, **NEVER_FIRST}
    conversation = talk(SEND, SEND, "done", tools=[asking], **options)
    events = await conversation.say("go")
    assert ("send", "consult_required") in statuses(events)
    answered = await conversation.say(decide(request_ids(events)[0]))
    assert statuses(answered) == [("send", None)]


@pytest.mark.parametrize(
    "options",
    [{"force_on_repeat": 0}, {"require_consult_before": "send"}, {"require_consult_before": ["model_consult"]}],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="ForceEscalationPlugin"):
        ForceEscalationPlugin(**options)
