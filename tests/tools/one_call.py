"""Calls of a tool in a real run: a scripted model makes them, the runner carries them out and stores what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.auth import AuthCredential
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.agents.talk import Talk

AnyTool = BaseTool | BaseToolset | Callable[..., Any]


@dataclass
class Calls:
    """events: all that were stored, the user's message first. requests: what the model was asked. state: at the end."""

    events: list[Event]
    requests: list[LlmRequest]
    state: JsonObject
    talk: Talk

    @property
    def responses(self) -> list[JsonObject]:
        """The response of each call that the model got."""
        return [r.response or {} for event in self.events for r in event.get_function_responses()]

    @property
    def response(self) -> JsonObject:
        (response,) = self.responses
        return response

    @property
    def actions(self) -> EventActions:
        """Those of the event with the only response."""
        (event,) = [event for event in self.events if event.get_function_responses()]
        return event.actions


async def calls_in_a_run(
    tool: AnyTool,
    *calls: tuple[str, JsonObject],
    state: JsonObject | None = None,
    granted: Mapping[str, AuthCredential] | None = None,
) -> Calls:
    """The calls one after the other, `call-1` and so on; then the tool is closed. state: the session's at its start.
    granted: what the user did before, by its key. Raises what ends the run."""
    made = [FunctionCall(id=f"call-{n}", name=name, args=args) for n, (name, args) in enumerate(calls, 1)]
    model = ScriptedModel([*made, "Done."])
    talk = Talk(LlmAgent(name="agent", model=model, tools=[tool]), state=state)
    for key, credential in (granted or {}).items():
        await talk.runner.credential_service.save_credential(
            app_name="app", user_id="ada", credential_key=key, credential=credential
        )
    try:
        await talk.say("go")
    finally:
        await talk.runner.close()
    return Calls(await talk.log(), model.requests, await talk.state(), talk)


async def call_once(
    tool: AnyTool, name: str, args: JsonObject | None = None, *, granted: Mapping[str, AuthCredential] | None = None
) -> Calls:
    return await calls_in_a_run(tool, (name, args or {}), granted=granted)


async def offered(tool: AnyTool, *, state: JsonObject | None = None) -> dict[str, BaseTool]:
    """The tools by name that a request offers to the model."""
    request = (await calls_in_a_run(tool, state=state)).requests[0]
    assert list(request.tools_dict) == [d.name for d in request.function_declarations()]
    tools: dict[str, Any] = request.tools_dict
    return tools


async def declaration(tool: AnyTool) -> FunctionDeclaration:
    """The declaration of the only tool, as the model gets it."""
    (shown,) = (await calls_in_a_run(tool)).requests[0].function_declarations()
    return shown


async def declared(tool: AnyTool) -> JsonObject | None:
    """The JSON Schema of the parameters that a model is shown, None if there are none."""
    return (await declaration(tool)).parameters_json_schema
