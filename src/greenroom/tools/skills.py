"""Skills: instructions, files and scripts that a model takes up when it needs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonValue
from greenroom.records.state import TEMP_PREFIX
from greenroom.tools.function_tool import FunctionTool
from greenroom.tools.skill_files import Frontmatter, Skill, load_skills_from_dir
from greenroom.tools.skill_scripts import ScriptRunner
from greenroom.tools.skill_tools import (
    ListSkillsTool,
    LoadSkillResourceTool,
    LoadSkillTool,
    RunSkillScriptTool,
    SearchSkillsTool,
    UnloadSkillTool,
    catalogue,
)
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate

MAX_ACTIVE = 5
_STATE_KEY = "_adk_activated_skill_"

_INSTRUCTION = (
    "You have skills: folders of instructions (SKILL.md), references, assets and scripts for special tasks. When one "
    "fits what the user wants, call `load_skill` with its name before anything else, and follow its instructions step "
    "by step. Read files that they mention with `load_skill_resource`, and run scripts that they mention with "
    "`run_skill_script`; no other tool reaches a skill's files."
)
_LISTED_BY_CALL = "Call `list_skills` to see which there are."
_NOTICES = {
    "persistent": None,
    "bounded": f"At most {MAX_ACTIVE} skills are loaded at a time; the oldest one makes room for a new one.",
    "ephemeral": "This skill is loaded until you have answered; load it again when you need it later.",
}


class SkillRegistry(Protocol):
    """Skills that live elsewhere, and are looked for by what they do."""

    async def search(self, query: str) -> list[Frontmatter]: ...

    async def load(self, name: str) -> Skill | None: ...


class SkillToolset(BaseToolset):
    """skills_dir: a folder with a folder for each skill. skills: more of them.

    discovery: whether the model asks for the list of skills (LAZY), or has it in its instruction (EAGER).
    lifecycle: loaded skills stay for the session, five at most for the session, or for one run. additional_tools: those
    that a skill names under `adk_additional_tools` can be called while it is loaded.
    script_runner: without one, scripts can only be read.
    Raises InvalidSkill, and AgentConfigError for two skills of one name.
    """

    def __init__(
        self,
        skills: Sequence[Skill] = (),
        *,
        skills_dir: str | Path | None = None,
        script_runner: ScriptRunner | None = None,
        script_timeout_seconds: float = 300.0,
        registry: SkillRegistry | None = None,
        additional_tools: Sequence[BaseTool | BaseToolset | Callable[..., Any]] = (),
        discovery: Literal["LAZY", "EAGER"] = "LAZY",
        lifecycle: Literal["persistent", "bounded", "ephemeral"] = "persistent",
        offers_unload: bool = False,
        allow_snake_case: bool = False,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter)
        found = list(skills)
        if skills_dir is not None:
            found += load_skills_from_dir(skills_dir, allow_snake_case=allow_snake_case)
        self._skills: dict[str, Skill] = {}
        for skill in found:
            if skill.name in self._skills:
                raise AgentConfigError(f"There are two skills named {skill.name!r}")
            self._skills[skill.name] = skill
        self.script_runner = script_runner
        self.script_timeout_seconds = script_timeout_seconds
        self.registry = registry
        self._discovery = discovery
        self._lifecycle = lifecycle
        self._additional = [
            tool if isinstance(tool, (BaseTool, BaseToolset)) else FunctionTool(tool) for tool in additional_tools
        ]
        self._from_registry: dict[str, Skill] = {}
        self._tools: list[BaseTool] = [LoadSkillTool(self), LoadSkillResourceTool(self), RunSkillScriptTool(self)]
        if discovery == "LAZY":
            self._tools.insert(0, ListSkillsTool(self))
        if registry is not None:
            self._tools.append(SearchSkillsTool(self))
        if offers_unload:
            self._tools.append(UnloadSkillTool(self))

    @property
    def skills(self) -> list[Skill]:
        return list(self._skills.values())

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        tools = [*self._tools, *await self._tools_of_active(readonly_context)]
        return [tool for tool in tools if self.is_selected(tool, readonly_context)]

    async def close(self) -> None:
        for tool in self._additional:
            if isinstance(tool, BaseToolset):
                await tool.close()

    async def find(self, name: str) -> Skill | None:
        skill = self._skills.get(name) or self._from_registry.get(name)
        if skill is None and self.registry is not None:
            skill = await self.registry.load(name)
            if skill is not None:
                self._from_registry[name] = skill
        return skill

    def instruction(self) -> str:
        if self._discovery == "EAGER":
            return f"{_INSTRUCTION}\n\n{catalogue([skill.frontmatter for skill in self.skills])}"
        return f"{_INSTRUCTION} {_LISTED_BY_CALL}"

    def lifecycle_notice(self) -> str | None:
        return _NOTICES[self._lifecycle]

    def activate(self, name: str, tool_context: ToolContext) -> list[str]:
        """Returns the skills that had to make room."""
        active = [other for other in self._active(tool_context) if other != name]
        unloaded: list[str] = []
        if self._lifecycle == "bounded":
            active, unloaded = active[-(MAX_ACTIVE - 1) :], active[: -(MAX_ACTIVE - 1)]
        tool_context.state[self._key(tool_context)] = [*active, name]
        return unloaded

    def deactivate(self, name: str, tool_context: ToolContext) -> bool:
        active = self._active(tool_context)
        if name not in active:
            return False
        tool_context.state[self._key(tool_context)] = [other for other in active if other != name]
        return True

    def with_state(self, instructions: str, tool_context: ToolContext) -> str:
        """`{name}` and `{name?}` from the session's state; whatever is not there stays as it is, unless optional."""

        def value(match: re.Match[str]) -> str:
            found: JsonValue = tool_context.state.get(match["name"])
            return str(found) if found is not None else "" if match["optional"] else match[0]

        return re.sub(r"{(?P<name>(?:(?:app|user|temp):)?[^\W\d]\w*)(?P<optional>\?)?}", value, instructions)

    def _key(self, context: ReadonlyContext) -> str:
        key = _STATE_KEY + context.agent_name
        return TEMP_PREFIX + key if self._lifecycle == "ephemeral" else key

    def _active(self, context: ReadonlyContext) -> list[str]:
        stored: Any = context.state.get(self._key(context))
        names = cast("list[Any]", stored) if isinstance(stored, list) else []
        return [name for name in names if isinstance(name, str)]

    async def _tools_of_active(self, context: ReadonlyContext | None) -> list[BaseTool]:
        if context is None or not self._additional:
            return []
        wanted: set[str] = set()
        for name in self._active(context):
            skill = self._skills.get(name) or self._from_registry.get(name)
            wanted |= set(skill.frontmatter.additional_tools if skill is not None else ())
        tools: list[BaseTool] = []
        for tool in self._additional if wanted else ():
            tools += await tool.get_tools(context) if isinstance(tool, BaseToolset) else [tool]
        return [tool for tool in tools if tool.name in wanted]
