"""What the functions have in common by which a model finds, reads and uses skills."""

from __future__ import annotations

from typing import NamedTuple

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.skills.shelf import SkillShelf
from greenroom.tools.skills.skill import Skill
from greenroom.tools.tool import BaseTool

NAME: JsonObject = {"type": "string", "description": "Name of the skill."}


class Argument(NamedTuple):
    name: str
    schema: JsonObject
    is_required: bool = False


class SkillTool(BaseTool):
    """One function of the toolset; arguments that are missing are told to the model."""

    def __init__(self, shelf: SkillShelf, name: str, description: str, *arguments: Argument) -> None:
        super().__init__(name=name, description=description, on_interrupt="retry")
        self._shelf = shelf
        self._arguments = arguments

    def _get_declaration(self) -> FunctionDeclaration:
        schema: JsonObject = {"type": "object", "properties": {a.name: a.schema for a in self._arguments}}
        required = [argument.name for argument in self._arguments if argument.is_required]
        if required:
            schema["required"] = required
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        for argument in self._arguments:
            given: JsonValue = args.get(argument.name)
            if argument.is_required and not (isinstance(given, str) and given):
                return error("INVALID_ARGUMENTS", f"{self.name} needs {argument.name}, a text")
        return await self.answer(args, tool_context)

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        raise NotImplementedError

    async def _find(self, name: str) -> Skill | JsonObject:
        """The skill, or what to tell the model."""
        try:
            skill = await self._shelf.find(name)
        except Exception as fault:  # a registry is other people's code
            return error("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")
        return skill or error("SKILL_NOT_FOUND", f"there is no skill {name!r}")


def error(code: str, text: str) -> JsonObject:
    return {"error": f"{text[0].upper()}{text[1:]}.", "error_code": code}
