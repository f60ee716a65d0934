"""Skills as a toolset: the functions by which a model finds, loads, reads and runs them.

Source of names, arguments and error codes: ADK's skill toolset.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, cast
from xml.sax.saxutils import escape

from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.environments.environment import BaseEnvironment
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.state import TEMP_PREFIX
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.skills.scripts import (
    CodeExecutorScriptRunner,
    EnvironmentScriptRunner,
    SandboxScriptRunner,
    ScriptRunner,
    UnsupportedScript,
    Word,
    run_script,
    script_command,
)
from greenroom.tools.skills.skill import ForbiddenPath, Frontmatter, Skill, load_skills_from_dir
from greenroom.tools.tool import BaseTool, OnInterrupt, newest_responses
from greenroom.tools.toolset import BaseToolset, ToolPredicate

Discovery: TypeAlias = Literal["LAZY", "EAGER"]
Lifecycle: TypeAlias = Literal["persistent", "bounded", "ephemeral"]

MAX_ACTIVE = 5
MAX_RESOURCE_BYTES = 5 * 1024 * 1024
_STATE_KEY = "_adk_activated_skill_"

DEFAULT_SKILL_SYSTEM_INSTRUCTION = (
    "You have skills: folders of instructions (SKILL.md), references, assets and scripts for special tasks. When one "
    "fits what the user wants, call `load_skill` with its name before anything else, and follow its instructions step "
    "by step. Read files that they mention with `load_skill_resource`; no other tool reads a skill's files."
)
_LISTED_BY_CALL = "Call `list_skills` to see which there are."
_BINARY = "This file is not text; it follows, for this once."
_NOTICES = {
    "persistent": "",
    "bounded": "At most {} skills are loaded at a time; the oldest one makes room for a new one.",
    "ephemeral": "This skill is loaded until you have answered; load it again when you need it later.",
}


class SkillRegistry(ABC):
    """Finds skills in an external registry by their purpose. Source of names: ADK."""

    @abstractmethod
    async def get_skill(self, *, name: str) -> Skill | None: ...

    @abstractmethod
    async def search_skills(self, *, query: str) -> list[Frontmatter]: ...

    def search_tool_description(self) -> str | None:
        """The model's instruction on searching; None for the default text."""
        return None


class _SkillProblem(Exception):
    """Becomes the response of a call: an error for the model, with ADK's code."""


def _fail(code: str, text: str) -> NoReturn:
    raise _SkillProblem({"error": f"{text[0].upper()}{text[1:]}.", "error_code": code})


class SkillTool(FunctionTool):
    """A function of the toolset as a tool.

    prepare: called with each request to the model, and the tool's name in it.
    """

    def __init__(
        self,
        func: Callable[..., Awaitable[JsonValue]],
        *,
        prepare: Callable[[LlmRequest, str], Awaitable[None]] | None = None,
        on_interrupt: OnInterrupt = "retry",
        description: str | None = None,
    ) -> None:
        super().__init__(func, on_interrupt=on_interrupt, description=description)
        self._prepare_request = prepare

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        refusal = await self.refusal(args=args, tool_context=tool_context)
        if refusal is not None:
            return {**refusal, "error_code": "INVALID_ARGUMENTS"}
        try:
            return await super().run_async(args=args, tool_context=tool_context)
        except _SkillProblem as problem:
            return problem.args[0]

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        if self._prepare_request is not None:
            await self._prepare_request(llm_request, self.name)


SkillName: TypeAlias = Annotated[str, "Name of the skill."]


class SkillDiscoveryMode(StrEnum):
    LAZY = "lazy"
    EAGER = "eager"


class SkillLifecycleMode(StrEnum):
    PERSISTENT = "persistent"
    BOUNDED = "bounded"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True)
class SkillLifecycleConfig:
    """The time for which loaded skills stay loaded. All skills share one mode."""

    enabled: bool = True
    """The model may unload skills, too."""

    default_mode: SkillLifecycleMode = SkillLifecycleMode.PERSISTENT
    max_active_skills: int = MAX_ACTIVE

    def __post_init__(self) -> None:
        if self.max_active_skills < 1:
            raise AgentConfigError("SkillLifecycleConfig: max_active_skills must be 1 or more")


class SkillToolset(BaseToolset):
    """Lets an agent load skills and run their scripts.

    skills_dir: a folder with a subfolder for each skill.
    skills: additional ones.

    discovery: the model calls a function for the list of skills (LAZY), or its instruction contains
        it (EAGER).
    lifecycle: loaded skills are kept for the session, at most five of them, or for one run.
    additional_tools: tools that are available while a skill is loaded that names them under
        `adk_additional_tools`. Scripts are run by the script_runner, by the code_executor, which
        may save what they write as artifacts (save_output_artifacts), or in the environment, with
        their files below skills_folder, or by the agent's code executor; without any of them, each
        in a sandbox of its own, see `default_sandbox`. script_timeout, discovery_mode and
        lifecycle_config are ADK's names; they count before the others.

    Raises AgentConfigError for two skills of one name.
    """

    def __init__(
        self,
        skills: Sequence[Skill] | None = None,
        *,
        skills_dir: str | Path | None = None,
        script_runner: ScriptRunner | None = None,
        script_timeout_seconds: float = 300.0,
        code_executor: BaseCodeExecutor | None = None,
        environment: BaseEnvironment | None = None,
        skills_folder: str | Path = "skills",
        script_timeout: float | None = None,
        save_output_artifacts: bool = False,
        registry: SkillRegistry | None = None,
        additional_tools: Sequence[BaseTool | BaseToolset | Callable[..., Any]] | None = None,
        discovery: Discovery = "LAZY",
        lifecycle: Lifecycle = "persistent",
        discovery_mode: SkillDiscoveryMode | None = None,
        lifecycle_config: SkillLifecycleConfig | None = None,
        offers_unload: bool = False,
        allow_snake_case: bool = False,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        all_skills = list(skills or ())
        if skills_dir is not None:
            all_skills += load_skills_from_dir(skills_dir, allow_snake_case=allow_snake_case)

        self._skills: dict[str, Skill] = {}

        for skill in all_skills:
            if skill.name in self._skills:
                raise AgentConfigError(f"There are two skills named {skill.name!r}")
            self._skills[skill.name] = skill

        if script_runner is None and code_executor is not None:
            script_runner = CodeExecutorScriptRunner(
                code_executor,
                saves_output=save_output_artifacts,
            )
        elif script_runner is None and environment is not None:
            script_runner = EnvironmentScriptRunner(environment, skills_folder)

        if discovery_mode is not None:
            if discovery_mode == SkillDiscoveryMode.EAGER:
                discovery = "EAGER"
            else:
                discovery = "LAZY"

        if lifecycle_config is not None:
            lifecycle = lifecycle_config.default_mode.value
            offers_unload = offers_unload or lifecycle_config.enabled

        self._environment = environment
        self._script_runner = script_runner
        self._saves_output = save_output_artifacts
        self._sandboxes = SandboxScriptRunner(saves_output=save_output_artifacts)
        self._script_timeout_seconds = script_timeout or script_timeout_seconds
        self._registry = registry
        self._from_registry: dict[str, Skill] = {}
        self._discovery = discovery
        self._lifecycle: Lifecycle = lifecycle

        if lifecycle_config is not None:
            self._max_active = lifecycle_config.max_active_skills
        else:
            self._max_active = MAX_ACTIVE

        self._additional = [
            tool if isinstance(tool, (BaseTool, BaseToolset)) else FunctionTool(tool) for tool in additional_tools or ()
        ]
        self._tools: list[BaseTool] = [
            SkillTool(self.load_skill, prepare=self._add_instruction),
            SkillTool(self.load_skill_resource, prepare=self._add_binary_files),
        ]
        self._script_tool = SkillTool(
            self.run_skill_script,
            on_interrupt="report",  # a script may have effects
            prepare=self._add_script_instruction,
        )
        if discovery == "LAZY":
            self._tools.insert(0, SkillTool(self.list_skills))

        if registry is not None:
            self._tools.append(SkillTool(self.search_skills, description=registry.search_tool_description()))

        if offers_unload:
            self._tools.append(SkillTool(self.unload_skill))

    @property
    def skills(self) -> list[Skill]:
        return list(self._skills.values())

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        tools = [*self._tools, *await self._tools_of_active(readonly_context), self._script_tool]
        return [tool for tool in tools if self.is_selected(tool, readonly_context)]

    async def close(self) -> None:
        if self._environment is not None and self._environment.is_initialized:
            self._environment.is_initialized = False
            await self._environment.close()
        for tool in self._additional:
            if isinstance(tool, BaseToolset):
                await tool.close()

    async def list_skills(self) -> str:
        """Lists the skills there are, with what each is for."""
        return catalogue([skill.frontmatter for skill in self.skills])

    async def search_skills(
        self,
        query: Annotated[str, "What the skill should be good for."],
    ) -> str:
        """Searches for more skills."""
        assert self._registry is not None
        with _registry_errors():
            return catalogue(await self._registry.search_skills(query=query))

    async def load_skill(self, skill_name: SkillName, tool_context: ToolContext) -> JsonObject:
        """Loads the instructions of a skill."""
        skill = await self._find(skill_name)
        instructions = skill.instructions
        if skill.frontmatter.injects_state:
            instructions = _with_state(instructions, tool_context)

        frontmatter = skill.frontmatter.to_plain()

        answer: JsonObject = {
            "skill_name": skill.name,
            "instructions": instructions,
            "frontmatter": frontmatter,
        }
        active = [other for other in self._active(tool_context) if other != skill.name]
        if self._lifecycle == "bounded" and len(active) >= self._max_active:
            unloaded = len(active) - self._max_active + 1
            answer["unloaded_skills"] = active[:unloaded]
            active = active[unloaded:]

        tool_context.state[self._key(tool_context)] = [*active, skill.name]
        notice = _NOTICES[self._lifecycle].format(self._max_active)

        return {**answer, "lifecycle_notice": notice} if notice else answer

    async def unload_skill(self, skill_name: SkillName, tool_context: ToolContext) -> JsonObject:
        """Puts a loaded skill away."""
        active = self._active(tool_context)
        if skill_name not in active:
            _fail("SKILL_NOT_FOUND", f"the skill {skill_name!r} is not loaded")
        tool_context.state[self._key(tool_context)] = [other for other in active if other != skill_name]
        return {"skill_name": skill_name, "status": "unloaded"}

    async def load_skill_resource(
        self,
        skill_name: SkillName,
        file_path: Annotated[str, "Path in the skill, such as references/rules.md."],
        tool_context: ToolContext,
    ) -> JsonObject:
        """Reads a file of a skill."""
        skill = await self._find(skill_name)
        text = _as_text(await _read(skill, file_path, "RESOURCE_NOT_FOUND", tool_context))
        answer: JsonObject = {"skill_name": skill.name, "file_path": file_path}
        if text is not None:
            return {**answer, "content": text}
        return {**answer, "status": _BINARY}

    async def run_skill_script(
        self,
        skill_name: SkillName,
        file_path: Annotated[str, "Path of the script in the skill, such as scripts/run.py."],
        tool_context: ToolContext,
        args: Annotated[
            dict[str, Any] | list[Word] | None,
            "Long options by name (true for one without a value), or the whole command line as a list.",
        ] = None,
        short_options: Annotated[dict[str, Any] | None, "Options of one letter, by letter."] = None,
        positional_args: Annotated[list[Word] | None, "What follows the options."] = None,
    ) -> JsonObject:
        """Runs a script of a skill, and returns what it prints."""
        skill = await self._find(skill_name)
        path = file_path if "/" in file_path else f"scripts/{file_path}"
        await _read(skill, path, "SCRIPT_NOT_FOUND", tool_context)

        try:
            command = script_command(path, args, short_options, positional_args)
        except UnsupportedScript:
            _fail("UNSUPPORTED_SCRIPT_TYPE", f"{path} can't be run; only .py, .sh and .bash can")
        except ValueError as fault:
            _fail("INVALID_ARGUMENTS", str(fault))

        runner = self._runner_for(tool_context.invocation_context.agent)
        seconds = self._script_timeout_seconds
        try:
            output = await run_script(runner, skill, command, tool_context, timeout_seconds=seconds)
        except TimeoutError:
            _fail("EXECUTION_ERROR", f"{path} was stopped after {seconds:g} seconds")
        except Exception as fault:  # a script runner may fail in any way
            _fail("EXECUTION_ERROR", f"{path} could not be run: {str(fault)[:200]}")

        return {"skill_name": skill.name, "file_path": path, **output}

    def _runner_for(self, agent: object) -> ScriptRunner:
        """Runs the scripts that this agent calls: with the agent's code executor, if the toolset
        has nothing, else in sandboxes.
        """
        if self._script_runner is not None:
            return self._script_runner
        executor = getattr(agent, "code_executor", None)
        if executor is not None:
            return CodeExecutorScriptRunner(executor, saves_output=self._saves_output)
        return self._sandboxes

    async def _add_script_instruction(self, llm_request: LlmRequest, tool_name: str) -> None:
        llm_request.append_instructions([f"Run scripts that a skill mentions with `{tool_name}`."])

    async def _add_instruction(self, llm_request: LlmRequest, tool_name: str) -> None:
        if self._discovery == "EAGER":
            listed = f"\n\n{await self.list_skills()}"
        else:
            listed = f" {_LISTED_BY_CALL}"
        llm_request.append_instructions([DEFAULT_SKILL_SYSTEM_INSTRUCTION + listed])

    async def _add_binary_files(self, llm_request: LlmRequest, tool_name: str) -> None:
        """Appends the binary files that the newest calls have read."""
        for response in newest_responses(tool_name, llm_request):
            if response.get("status") != _BINARY:
                continue

            path = str(response.get("file_path"))
            name = str(response.get("skill_name"))
            try:
                content = await asyncio.to_thread(
                    (await self._find(name)).read,
                    path,
                    max_bytes=MAX_RESOURCE_BYTES,
                )
            except (_SkillProblem, ForbiddenPath, OverflowError):
                content = None

            if content is not None:
                media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
                shown = [Part(text=f"{path} of skill {name}:"), Part.from_bytes(data=content, mime_type=media_type)]
                llm_request.contents.append(Content(role="user", parts=shown))

    async def _find(self, name: str) -> Skill:
        skill = self._skills.get(name) or self._from_registry.get(name)
        if skill is None and self._registry is not None:
            with _registry_errors():
                skill = await self._registry.get_skill(name=name)
            if skill is not None:
                self._from_registry[name] = skill
        return skill or _fail("SKILL_NOT_FOUND", f"there is no skill {name!r}")

    async def _tools_of_active(self, context: ReadonlyContext | None) -> list[BaseTool]:
        """The additional tools that the loaded skills name."""
        if context is None or not self._additional:
            return []

        known_skills = {**self._from_registry, **self._skills}
        active = [known_skills[name] for name in self._active(context) if name in known_skills]
        wanted = {name for skill in active for name in skill.frontmatter.additional_tools}
        tools: list[BaseTool] = []
        for tool in self._additional if wanted else ():
            tools += await tool.get_tools_with_prefix(context) if isinstance(tool, BaseToolset) else [tool]

        return [tool for tool in tools if tool.name in wanted]

    def _key(self, context: ReadonlyContext) -> str:
        key = _STATE_KEY + context.agent_name
        return TEMP_PREFIX + key if self._lifecycle == "ephemeral" else key

    def _active(self, context: ReadonlyContext) -> list[str]:
        stored: Any = context.state.get(self._key(context))
        if isinstance(stored, list):
            names = cast("list[Any]", stored)
        else:
            names = []
        return [name for name in names if isinstance(name, str)]


@contextlib.contextmanager
def _registry_errors() -> Generator[None]:
    try:
        yield
    except Exception as fault:  # a registry is other people's code
        _fail("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")


def catalogue(skills: list[Frontmatter]) -> str:
    entries = (
        f"<skill><name>{escape(skill.name)}</name><description>{escape(skill.description)}</description></skill>"
        for skill in skills
    )
    return f"<available_skills>{''.join(entries)}</available_skills>"


async def _read(skill: Skill, path: str, code: str, tool_context: ToolContext) -> bytes:
    """The file's content. The second missing file in a run gets the code `…_FATAL`, which stops the
    model's guesses.
    """
    try:
        content = await asyncio.to_thread(skill.read, path, max_bytes=MAX_RESOURCE_BYTES)
    except ForbiddenPath:
        _fail(
            "INVALID_RESOURCE_PATH",
            f"{path!r} must be the path of a file in the skill's folder, and not of a hidden one",
        )
    except OverflowError:
        _fail("RESOURCE_TOO_LARGE", f"{path!r} is larger than {MAX_RESOURCE_BYTES} bytes")

    if content is not None:
        return content

    key = f"{TEMP_PREFIX}_skill_files_missed_{tool_context.agent_name}"
    before: Any = tool_context.state.get(key)
    tool_context.state[key] = tool_context.invocation_id
    if before == tool_context.invocation_id:
        _fail(f"{code}_FATAL", f"skill {skill.name!r} has no {path!r} either; don't guess again")

    _fail(code, f"skill {skill.name!r} has no {path!r}")


def _as_text(content: bytes) -> str | None:
    try:
        return content.decode() if b"\0" not in content else None
    except UnicodeDecodeError:
        return None


def _with_state(instructions: str, tool_context: ToolContext) -> str:
    """Replaces `{name}` and `{name?}` by the session's state; an unknown name is kept unless it is
    optional.
    """

    def value(match: re.Match[str]) -> str:
        found: JsonValue = tool_context.state.get(match["name"])
        if found is not None:
            return str(found)
        if match["optional"]:
            return ""
        return match[0]

    return re.sub(
        r"{(?P<name>(?:(?:app|user|temp):)?[^\W\d]\w*)(?P<optional>\?)?}",
        value,
        instructions,
    )
