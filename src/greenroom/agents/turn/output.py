"""Answers of a declared shape: asked for through a tool where the agent has other tools, and saved under its key."""

from __future__ import annotations

import msgspec

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema

SET_RESPONSE_TOOL = "set_model_response"
_VALUE = "value"


class SetModelResponseTool(BaseTool):
    """Takes the final answer as arguments; reports to the model what doesn't fit the schema."""

    instruction = f"When you know the final answer, give it by calling `{SET_RESPONSE_TOOL}`, not as text."

    def __init__(self, output_type: TypeSchema) -> None:
        super().__init__(
            name=SET_RESPONSE_TOOL,
            description="Gives the final answer in the form that is asked for.",
            on_interrupt="retry",
        )
        self._type = output_type
        self._is_object = output_type.json_schema().get("type") == "object"

    def _get_declaration(self) -> FunctionDeclaration:
        schema = self._type.json_schema()
        if not self._is_object:
            value = {key: part for key, part in schema.items() if key != "$defs"}
            schema = {"type": "object", "properties": {_VALUE: value}, "required": [_VALUE]}
            if "$defs" in self._type.json_schema():
                schema["$defs"] = self._type.json_schema()["$defs"]
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        try:
            answer = self._type.to_json(self._type.convert(args if self._is_object else args.get(_VALUE)))
        except InvalidValue as error:
            return {"error": f"The answer does not have the form that is asked for: {error}"}
        tool_context.actions.set_model_response = answer
        return answer


def final_answer(agent: BaseLlmAgent, responses: Event) -> Event | None:
    """The event with the structured answer as text, when this event of tool responses brought one."""
    answer = responses.actions.set_model_response
    if answer is None:
        return None
    content = Content(role="model", parts=[Part(text=wire.encode(answer).decode())])
    return Event(invocation_id=responses.invocation_id, author=agent.name, branch=responses.branch, content=content)


def save_output(agent: BaseLlmAgent, event: Event) -> None:
    """Put the agent's final answer into the state delta of that very event, under the agent's output key.

    Text that doesn't fit the output schema is saved as it is.
    """
    if agent.output_key is None or event.partial or event.author != agent.name or event.content is None:
        return
    if not event.ends_turn():
        return
    texts = [part.text for part in event.content.parts or () if part.text is not None and not part.thought]
    if not texts:
        return
    text = "".join(texts)
    value: JsonValue = text
    if agent.output_type is not None:
        if not text.strip():
            return
        try:
            value = agent.output_type.to_json(agent.output_type.convert(msgspec.json.decode(text)))
        except (msgspec.DecodeError, InvalidValue):
            value = text
    event.actions.state_delta[agent.output_key] = value
