"""Answers of a declared shape: asked for through a tool where the agent has other tools, and saved under its key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool
from greenroom.tools.value_types.answer_text import value_in
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema
from greenroom.tools.value_types.type_schema import type_schema

SET_RESPONSE_TOOL = "set_model_response"
FINISH_TASK_TOOL = "finish_task"
SCHEMA_MISMATCH = "OUTPUT_SCHEMA_MISMATCH"
"""The error code of a final answer that does not fit the agent's output schema."""
_REJECTED = "greenroom:rejected"
"""Key of custom metadata: why an answer was rejected, after which the model is asked once more."""


class _OutputTool(BaseTool):
    """Takes a value as its arguments: the fields of an object, other values as the argument `key`."""

    def __init__(self, name: str, description: str, output_type: TypeSchema, *, key: str) -> None:
        super().__init__(name=name, description=description, on_interrupt="retry")
        self._type = output_type
        self._key = None if output_type.json_schema().get("type") == "object" else key

    def _get_declaration(self) -> FunctionDeclaration:
        schema = self._type.json_schema()
        if self._key is not None:
            value = {key: part for key, part in schema.items() if key != "$defs"}
            schema = {"type": "object", "properties": {self._key: value}, "required": [self._key]}
            if "$defs" in self._type.json_schema():
                schema["$defs"] = self._type.json_schema()["$defs"]
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    def _read(self, args: JsonObject) -> JsonValue:
        """Raises InvalidValue."""
        return self._type.to_json(self._type.convert(args if self._key is None else args.get(self._key)))


class SetModelResponseTool(_OutputTool):
    """Takes the final answer as arguments, and reports mismatches with the schema to the model."""

    instruction = f"When you know the final answer, give it by calling `{SET_RESPONSE_TOOL}`, not as text."

    def __init__(self, output_type: TypeSchema) -> None:
        description = "Gives the final answer in the form that is asked for."
        super().__init__(SET_RESPONSE_TOOL, description, output_type, key="value")

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        try:
            answer = self._read(args)
        except InvalidValue as error:
            return {"error": f"The answer does not have the form that is asked for: {error}"}
        tool_context.actions.set_model_response = answer
        return answer


class FinishTaskTool(_OutputTool):
    """Ends an agent in mode `task`. Its arguments are the output: the output schema's, else a text `result`."""

    instruction = (
        f"When the whole task is done, and not before, call `{FINISH_TASK_TOOL}` alone, without any text. "
        "If something about the task is unclear, ask the user."
    )

    def __init__(self, agent: BaseLlmAgent) -> None:
        output_type = agent.output_type or type_schema(_TaskOutput)
        super().__init__(FINISH_TASK_TOOL, "Ends the task with its result.", output_type, key="result")
        self._delegates = {child.name for child in agent.sub_agents if child.is_delegate}

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        ctx = tool_context.invocation_context
        run = log_state_of(ctx.session.events).run(ctx.invocation_id)
        record = run.call(tool_context.function_call_id, ctx.agent.name, ctx.branch)
        calls = record.event.get_function_calls() if record is not None and record.event is not None else []
        if any(call.name in self._delegates for call in calls):
            return {"error": "The task is not done: another agent was called beside this. Finish when it has answered."}
        try:
            tool_context.output = self._read(args)
        except InvalidValue as error:
            return {"error": f"The task is not done, because of these arguments: {error}. Correct them."}
        return "Task completed."


@dataclass
class _TaskOutput:
    result: str


def finish_task(agent: BaseLlmAgent, responses: Event, contexts: Iterable[ToolContext | None]) -> bool:
    """Makes the output of a finished task that of the event of its responses. False while the task is unfinished."""
    output = next((ctx.output for ctx in contexts if ctx is not None and ctx.output is not None), None)
    if agent.mode != "task" or output is None:
        return False
    responses.output = output
    if agent.output_key is not None:
        responses.actions.state_delta[agent.output_key] = output
    return True


def final_answer(agent: BaseLlmAgent, responses: Event) -> Event | None:
    """The event with the structured answer as text, when this event of tool responses brought one."""
    answer = responses.actions.set_model_response
    if answer is None:
        return None
    content = Content(role="model", parts=[Part(text=wire.encode(answer).decode())])
    return Event(invocation_id=responses.invocation_id, author=agent.name, branch=responses.branch, content=content)


def save_output(agent: BaseLlmAgent, event: Event, *, may_correct: bool = False) -> None:
    """Puts the agent's final answer into the state delta of its event, under the agent's output key.

    An answer that doesn't fit the output schema is not saved: its event is an error or, with may_correct, notes why,
    so that the model can be told. The output of a task is saved by `finish_task`.
    """
    if (
        agent.output_key is None
        or agent.mode == "task"
        or event.partial
        or event.author != agent.name
        or event.content is None
    ):
        return

    if not event.ends_turn():
        return
    texts = [part.text for part in event.content.parts or () if part.text is not None and not part.thought]
    if not texts:
        return
    text = "".join(texts)
    if agent.output_type is None:
        event.actions.state_delta[agent.output_key] = text
    elif text.strip():
        try:
            event.actions.state_delta[agent.output_key] = value_in(text, agent.output_type)
        except InvalidValue as error:
            _reject(event, str(error), may_correct=may_correct)


def _reject(event: Event, reason: str, *, may_correct: bool) -> None:
    if event.error_code is not None:
        return
    if may_correct:
        event.custom_metadata = {**(event.custom_metadata or {}), _REJECTED: reason}
    else:
        event.error_code = SCHEMA_MISMATCH
        event.error_message = f"The answer does not fit the output schema: {reason}"


def rejection_of(event: Event) -> str | None:
    """The reason why an answer doesn't fit the output schema, if the model is to give it again."""
    return (event.custom_metadata or {}).get(_REJECTED)


def correction(reason: str) -> Content:
    """The request to the model to give a rejected answer again."""
    text = f"The answer does not have the form that is asked for: {reason}. Give the whole answer again in that form."
    return Content(role="user", parts=[Part(text=text)])
