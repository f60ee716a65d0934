"""The skills that an agent has, and those that it has loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast
from xml.sax.saxutils import escape

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.state import TEMP_PREFIX
from greenroom.tools.skills.skill import Frontmatter, Skill

Discovery: TypeAlias = Literal["LAZY", "EAGER"]
Lifecycle: TypeAlias = Literal["persistent", "bounded", "ephemeral"]

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
    """Skills from elsewhere, found by what they are for."""

    async def search(self, query: str) -> list[Frontmatter]: ...

    async def load(self, name: str) -> Skill | None: ...


class SkillCatalog:
    """Raises AgentConfigError for two skills of one name."""

    def __init__(
        self, skills: Sequence[Skill], *, registry: SkillRegistry | None, discovery: Discovery, lifecycle: Lifecycle
    ) -> None:
        self._skills: dict[str, Skill] = {}
        for skill in skills:
            if skill.name in self._skills:
                raise AgentConfigError(f"There are two skills named {skill.name!r}")
            self._skills[skill.name] = skill
        self.registry = registry
        self._discovery = discovery
        self._lifecycle = lifecycle
        self._from_registry: dict[str, Skill] = {}

    @property
    def skills(self) -> list[Skill]:
        return list(self._skills.values())

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
        """Marks a skill as loaded. Returns the skills that were unloaded to stay within the limit."""
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

    def additional_tools(self, context: ReadonlyContext) -> set[str]:
        """Names of the additional tools of the loaded skills."""
        wanted: set[str] = set()
        for name in self._active(context):
            skill = self._skills.get(name) or self._from_registry.get(name)
            wanted |= set(skill.frontmatter.additional_tools if skill is not None else ())
        return wanted

    def _key(self, context: ReadonlyContext) -> str:
        key = _STATE_KEY + context.agent_name
        return TEMP_PREFIX + key if self._lifecycle == "ephemeral" else key

    def _active(self, context: ReadonlyContext) -> list[str]:
        stored: Any = context.state.get(self._key(context))
        names = cast("list[Any]", stored) if isinstance(stored, list) else []
        return [name for name in names if isinstance(name, str)]


def catalogue(skills: list[Frontmatter]) -> str:
    entries = (
        f"<skill><name>{escape(skill.name)}</name><description>{escape(skill.description)}</description></skill>"
        for skill in skills
    )
    return f"<available_skills>{''.join(entries)}</available_skills>"
