"""Skills as a toolset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from greenroom.invocation.user_context import ReadonlyContext
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.skills.scripts import ScriptRunner
from greenroom.tools.skills.skill import Skill, load_skills_from_dir
from greenroom.tools.skills.tools import Discovery, Lifecycle, SkillCatalog, SkillRegistry
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate


class SkillToolset(BaseToolset):
    """skills_dir: a folder with a subfolder for each skill. skills: additional ones.

    discovery: the model calls a function for the list of skills (LAZY), or its instruction contains it (EAGER).
    lifecycle: loaded skills are kept for the session, at most five of them, or for one run. additional_tools: tools
    that are available while a skill is loaded that names them under `adk_additional_tools`. script_runner: without one,
    scripts can only be read.
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
        discovery: Discovery = "LAZY",
        lifecycle: Lifecycle = "persistent",
        offers_unload: bool = False,
        allow_snake_case: bool = False,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        found = list(skills)
        if skills_dir is not None:
            found += load_skills_from_dir(skills_dir, allow_snake_case=allow_snake_case)
        self._catalog = SkillCatalog(
            found,
            registry=registry,
            discovery=discovery,
            lifecycle=lifecycle,
            script_runner=script_runner,
            script_timeout_seconds=script_timeout_seconds,
        )
        self._tools = self._catalog.tools(offers_unload=offers_unload)
        self._additional = [
            tool if isinstance(tool, (BaseTool, BaseToolset)) else FunctionTool(tool) for tool in additional_tools
        ]

    @property
    def skills(self) -> list[Skill]:
        return self._catalog.skills

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        tools = [*self._tools, *await self._tools_of_active(readonly_context)]
        return [tool for tool in tools if self.is_selected(tool, readonly_context)]

    async def close(self) -> None:
        for tool in self._additional:
            if isinstance(tool, BaseToolset):
                await tool.close()

    async def _tools_of_active(self, context: ReadonlyContext | None) -> list[BaseTool]:
        if context is None or not self._additional:
            return []
        wanted = self._catalog.additional_tools(context)
        tools: list[BaseTool] = []
        for tool in self._additional if wanted else ():
            tools += await tool.get_tools_with_prefix(context) if isinstance(tool, BaseToolset) else [tool]
        return [tool for tool in tools if tool.name in wanted]
