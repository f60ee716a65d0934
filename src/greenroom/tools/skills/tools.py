"""The catalog of an agent's skills, and the functions by which a model finds, loads, reads and runs them.

Source of names, arguments and error codes: ADK's skill toolset.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, cast
from xml.sax.saxutils import escape

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.state import TEMP_PREFIX
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.skills.scripts import ScriptRunner, UnsupportedScript, run_script, script_command
from greenroom.tools.skills.skill import FOLDERS, ForbiddenPath, Frontmatter, Skill
from greenroom.tools.tool import BaseTool, OnInterrupt, newest_responses

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


MAX_RESOURCE_BYTES = 5 * 1024 * 1024

_BINARY = "This file is not text; it follows, for this once."


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


_SKILL_NAME = _text("Name of the skill.")


class _Problem(Exception):
    """Becomes the response of a call: an error for the model, with ADK's code."""


def _fail(code: str, text: str) -> NoReturn:
    raise _Problem({"error": f"{text[0].upper()}{text[1:]}.", "error_code": code})


class SkillTool(BaseTool):
    """One function of the toolset. `required`: names of arguments that must be non-empty texts."""

    def __init__(
        self,
        catalog: SkillCatalog,
        name: str,
        description: str,
        arguments: JsonObject,
        *,
        required: tuple[str, ...] = (),
        on_interrupt: OnInterrupt = "retry",
    ) -> None:
        super().__init__(name=name, description=description, on_interrupt=on_interrupt)
        self._catalog = catalog
        self._arguments = arguments
        self._required = required

    def _get_declaration(self) -> FunctionDeclaration:
        schema: JsonObject = {"type": "object", "properties": self._arguments}
        if self._required:
            schema["required"] = list(self._required)
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        try:
            for name in self._required:
                given: JsonValue = args.get(name)
                if not (isinstance(given, str) and given):
                    _fail("INVALID_ARGUMENTS", f"{self.name} needs {name}, a text")
            return await self.answer(args, tool_context)
        except _Problem as problem:
            return problem.args[0]

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        raise NotImplementedError

    async def _find(self, name: str) -> Skill:
        try:
            skill = await self._catalog.find(name)
        except Exception as fault:  # a registry is other people's code
            _fail("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")
        return skill or _fail("SKILL_NOT_FOUND", f"there is no skill {name!r}")


class ListSkillsTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        super().__init__(catalog, "list_skills", "Lists the skills there are, with what each is for.", {})

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return catalogue([skill.frontmatter for skill in self._catalog.skills])


class LoadSkillTool(SkillTool):
    """Adds the instruction on skills to requests, and with EAGER discovery the catalogue."""

    def __init__(self, catalog: SkillCatalog) -> None:
        arguments: JsonObject = {"skill_name": _SKILL_NAME}
        description = "Loads the instructions of a skill."
        super().__init__(catalog, "load_skill", description, arguments, required=("skill_name",))

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        llm_request.append_instructions([self._catalog.instruction()])

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        skill = await self._find(args["skill_name"])
        instructions = skill.instructions
        if skill.frontmatter.injects_state:
            instructions = _with_state(instructions, tool_context)
        frontmatter = skill.frontmatter.to_plain()
        answer: JsonObject = {"skill_name": skill.name, "instructions": instructions, "frontmatter": frontmatter}
        unloaded = self._catalog.activate(skill.name, tool_context)
        if unloaded:
            answer["unloaded_skills"] = unloaded
        notice = self._catalog.lifecycle_notice()
        return {**answer, "lifecycle_notice": notice} if notice else answer


class SearchSkillsTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        arguments: JsonObject = {"query": _text("What the skill should be good for.")}
        super().__init__(catalog, "search_skills", "Searches for more skills.", arguments, required=("query",))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        registry = self._catalog.registry
        try:
            return catalogue(await registry.search(args["query"]) if registry is not None else [])
        except Exception as fault:  # a registry is other people's code
            _fail("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")


class UnloadSkillTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        arguments: JsonObject = {"skill_name": _SKILL_NAME}
        super().__init__(catalog, "unload_skill", "Puts a loaded skill away.", arguments, required=("skill_name",))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        name: str = args["skill_name"]
        if not self._catalog.deactivate(name, tool_context):
            _fail("SKILL_NOT_FOUND", f"the skill {name!r} is not loaded")
        return {"skill_name": name, "status": "unloaded"}


class LoadSkillResourceTool(SkillTool):
    """A binary file is added to the request that follows the call."""

    def __init__(self, catalog: SkillCatalog) -> None:
        path = _text(f"Path in the skill, in one of: {', '.join(FOLDERS)}.")
        arguments: JsonObject = {"skill_name": _SKILL_NAME, "file_path": path}
        description = "Reads a file of a skill."
        super().__init__(catalog, "load_skill_resource", description, arguments, required=tuple(arguments))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        skill = await self._find(args["skill_name"])
        path: str = args["file_path"]
        text = _as_text(await _read(skill, path, "RESOURCE_NOT_FOUND", tool_context))
        answer: JsonObject = {"skill_name": skill.name, "file_path": path}
        return {**answer, "content": text} if text is not None else {**answer, "status": _BINARY}

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        for response in newest_responses(self.name, llm_request):
            if response.get("status") == _BINARY:
                llm_request.contents.extend(await self._binary(response))

    async def _binary(self, response: JsonObject) -> list[Content]:
        path = str(response.get("file_path"))
        try:
            skill = await self._find(str(response.get("skill_name")))
            content = await asyncio.to_thread(skill.read, path, max_bytes=MAX_RESOURCE_BYTES)
        except (_Problem, ForbiddenPath, OverflowError):
            return []
        if content is None:
            return []
        media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        parts = [Part(text=f"{path} of skill {skill.name}:"), Part.from_bytes(data=content, mime_type=media_type)]
        return [Content(role="user", parts=parts)]


class RunSkillScriptTool(SkillTool):
    """A script may have effects, so an interrupted call is not repeated."""

    def __init__(self, catalog: SkillCatalog, runner: ScriptRunner | None, *, timeout_seconds: float) -> None:
        arguments: JsonObject = {
            "skill_name": _SKILL_NAME,
            "file_path": _text("Path of the script in the skill, such as scripts/run.py."),
            "args": {
                "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "string"}}],
                "description": "Long options by name (true for one without a value), or the whole command line as a "
                "list.",
            },
            "short_options": {"type": "object", "description": "Options of one letter, by letter."},
            "positional_args": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What follows the options.",
            },
        }
        super().__init__(
            catalog,
            "run_skill_script",
            "Runs a script of a skill, and returns what it prints.",
            arguments,
            required=("skill_name", "file_path"),
            on_interrupt="report",
        )
        self._runner = runner
        self._timeout_seconds = timeout_seconds

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        skill = await self._find(args["skill_name"])
        path: str = args["file_path"]
        path = path if "/" in path else f"scripts/{path}"
        await _read(skill, path, "SCRIPT_NOT_FOUND", tool_context)
        try:
            command = script_command(path, args)
        except UnsupportedScript:
            _fail("UNSUPPORTED_SCRIPT_TYPE", f"{path} can't be run; only .py, .sh and .bash can")
        except ValueError as fault:
            _fail("INVALID_ARGUMENTS", str(fault))
        runner, seconds = self._runner, self._timeout_seconds
        if runner is None:
            _fail("NO_CODE_EXECUTOR", "nothing is set up here that could run scripts")
        try:
            output = await run_script(runner, skill, command, tool_context, timeout_seconds=seconds)
        except TimeoutError:
            _fail("EXECUTION_ERROR", f"{path} was stopped after {seconds:g} seconds")
        except Exception as fault:  # a script runner may fail in any way
            _fail("EXECUTION_ERROR", f"{path} could not be run: {str(fault)[:200]}")
        return {"skill_name": skill.name, "file_path": path, **output}


async def _read(skill: Skill, path: str, code: str, tool_context: ToolContext) -> bytes:
    """The file's content. The second missing file in a run gets the code `…_FATAL`, which stops the model's guesses."""
    try:
        content = await asyncio.to_thread(skill.read, path, max_bytes=MAX_RESOURCE_BYTES)
    except ForbiddenPath:
        _fail("INVALID_RESOURCE_PATH", f"{path!r} must be a path in one of {', '.join(FOLDERS)}")
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
    """Replaces `{name}` and `{name?}` by the session's state; an unknown name is kept unless it is optional."""

    def value(match: re.Match[str]) -> str:
        found: JsonValue = tool_context.state.get(match["name"])
        return str(found) if found is not None else "" if match["optional"] else match[0]

    return re.sub(r"{(?P<name>(?:(?:app|user|temp):)?[^\W\d]\w*)(?P<optional>\?)?}", value, instructions)
