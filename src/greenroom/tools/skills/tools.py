"""The functions by which a model finds skills, takes them up and puts them away.

Source of names, arguments and error codes: ADK's skill toolset.
"""

from __future__ import annotations

import re

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.skills.shelf import SkillShelf, catalogue
from greenroom.tools.skills.skill import Skill
from greenroom.tools.skills.skill_tool import NAME, Argument, SkillTool, error


class ListSkillsTool(SkillTool):
    def __init__(self, shelf: SkillShelf) -> None:
        super().__init__(shelf, "list_skills", "Lists the skills there are, with what each is for.")

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return catalogue([skill.frontmatter for skill in self._shelf.skills])


class LoadSkillTool(SkillTool):
    """Its requests carry the instruction on skills, and with EAGER discovery the catalogue."""

    def __init__(self, shelf: SkillShelf) -> None:
        super().__init__(shelf, "load_skill", "Loads the instructions of a skill.", Argument("skill_name", NAME, True))

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        llm_request.append_instructions([self._shelf.instruction()])

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        skill = await self._find(args["skill_name"])
        if not isinstance(skill, Skill):
            return skill
        instructions = skill.instructions
        if skill.frontmatter.injects_state:
            instructions = _with_state(instructions, tool_context)
        answer: JsonObject = {
            "skill_name": skill.name,
            "instructions": instructions,
            "frontmatter": skill.frontmatter.to_plain(),
        }
        unloaded = self._shelf.activate(skill.name, tool_context)
        if unloaded:
            answer["unloaded_skills"] = unloaded
        notice = self._shelf.lifecycle_notice()
        return {**answer, "lifecycle_notice": notice} if notice else answer


class SearchSkillsTool(SkillTool):
    def __init__(self, shelf: SkillShelf) -> None:
        query = {"type": "string", "description": "What the skill should be good for."}
        super().__init__(shelf, "search_skills", "Searches for more skills.", Argument("query", query, True))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        registry = self._shelf.registry
        try:
            return catalogue(await registry.search(args["query"]) if registry is not None else [])
        except Exception as fault:  # a registry is other people's code
            return error("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")


class UnloadSkillTool(SkillTool):
    def __init__(self, shelf: SkillShelf) -> None:
        super().__init__(shelf, "unload_skill", "Puts a loaded skill away.", Argument("skill_name", NAME, True))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        name: str = args["skill_name"]
        if not self._shelf.deactivate(name, tool_context):
            return error("SKILL_NOT_FOUND", f"the skill {name!r} is not loaded")
        return {"skill_name": name, "status": "unloaded"}


def _with_state(instructions: str, tool_context: ToolContext) -> str:
    """`{name}` and `{name?}` from the session's state; whatever is not there stays as it is, unless optional."""

    def value(match: re.Match[str]) -> str:
        found: JsonValue = tool_context.state.get(match["name"])
        return str(found) if found is not None else "" if match["optional"] else match[0]

    return re.sub(r"{(?P<name>(?:(?:app|user|temp):)?[^\W\d]\w*)(?P<optional>\?)?}", value, instructions)
