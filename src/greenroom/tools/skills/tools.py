"""The functions by which a model finds, loads, reads and runs skills.

Source of names, arguments and error codes: ADK's skill toolset.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from typing import Any, NamedTuple

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.state import TEMP_PREFIX
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.skills.catalog import SkillCatalog, catalogue
from greenroom.tools.skills.scripts import ScriptRunner, UnsupportedScript, run_script, script_command
from greenroom.tools.skills.skill import FOLDERS, ForbiddenPath, Skill
from greenroom.tools.tool import BaseTool

NAME: JsonObject = {"type": "string", "description": "Name of the skill."}


class Argument(NamedTuple):
    name: str
    schema: JsonObject
    is_required: bool = False


class SkillTool(BaseTool):
    """One function of the toolset; arguments that are missing are told to the model."""

    def __init__(self, catalog: SkillCatalog, name: str, description: str, *arguments: Argument) -> None:
        super().__init__(name=name, description=description, on_interrupt="retry")
        self._catalog = catalog
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
            skill = await self._catalog.find(name)
        except Exception as fault:  # a registry is other people's code
            return error("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")
        return skill or error("SKILL_NOT_FOUND", f"there is no skill {name!r}")


def error(code: str, text: str) -> JsonObject:
    return {"error": f"{text[0].upper()}{text[1:]}.", "error_code": code}


class ListSkillsTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        super().__init__(catalog, "list_skills", "Lists the skills there are, with what each is for.")

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return catalogue([skill.frontmatter for skill in self._catalog.skills])


class LoadSkillTool(SkillTool):
    """Its requests carry the instruction on skills, and with EAGER discovery the catalogue."""

    def __init__(self, catalog: SkillCatalog) -> None:
        super().__init__(
            catalog, "load_skill", "Loads the instructions of a skill.", Argument("skill_name", NAME, True)
        )

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        llm_request.append_instructions([self._catalog.instruction()])

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
        unloaded = self._catalog.activate(skill.name, tool_context)
        if unloaded:
            answer["unloaded_skills"] = unloaded
        notice = self._catalog.lifecycle_notice()
        return {**answer, "lifecycle_notice": notice} if notice else answer


class SearchSkillsTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        query = {"type": "string", "description": "What the skill should be good for."}
        super().__init__(catalog, "search_skills", "Searches for more skills.", Argument("query", query, True))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        registry = self._catalog.registry
        try:
            return catalogue(await registry.search(args["query"]) if registry is not None else [])
        except Exception as fault:  # a registry is other people's code
            return error("REGISTRY_ERROR", f"the registry of skills failed: {type(fault).__name__}")


class UnloadSkillTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        super().__init__(catalog, "unload_skill", "Puts a loaded skill away.", Argument("skill_name", NAME, True))

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        name: str = args["skill_name"]
        if not self._catalog.deactivate(name, tool_context):
            return error("SKILL_NOT_FOUND", f"the skill {name!r} is not loaded")
        return {"skill_name": name, "status": "unloaded"}


def _with_state(instructions: str, tool_context: ToolContext) -> str:
    """`{name}` and `{name?}` from the session's state; whatever is not there stays as it is, unless optional."""

    def value(match: re.Match[str]) -> str:
        found: JsonValue = tool_context.state.get(match["name"])
        return str(found) if found is not None else "" if match["optional"] else match[0]

    return re.sub(r"{(?P<name>(?:(?:app|user|temp):)?[^\W\d]\w*)(?P<optional>\?)?}", value, instructions)


MAX_RESOURCE_BYTES = 5 * 1024 * 1024

_BINARY = "This file is not text; it follows, for this once."


class LoadSkillResourceTool(SkillTool):
    def __init__(self, catalog: SkillCatalog) -> None:
        path = {"type": "string", "description": f"Path in the skill, in one of: {', '.join(FOLDERS)}."}
        super().__init__(
            catalog,
            "load_skill_resource",
            "Reads a file of a skill.",
            Argument("skill_name", NAME, True),
            Argument("file_path", path, True),
        )

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        skill = await self._find(args["skill_name"])
        if not isinstance(skill, Skill):
            return skill
        path: str = args["file_path"]
        content = await _read(skill, path, "RESOURCE_NOT_FOUND", tool_context)
        if isinstance(content, dict):
            return content
        answer: JsonObject = {"skill_name": skill.name, "file_path": path}
        text = _as_text(content)
        return {**answer, "content": text} if text is not None else {**answer, "status": _BINARY}

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        last = llm_request.contents[-1] if llm_request.contents else None
        for part in (last.parts if last is not None else None) or ():
            response = part.function_response
            if response is not None and response.name == self.name:
                shown = await self._binary(response.response or {})
                if shown is not None:
                    llm_request.contents.append(shown)

    async def _binary(self, response: JsonObject) -> Content | None:
        if response.get("status") != _BINARY:
            return None
        path = str(response.get("file_path"))
        skill = await self._find(str(response.get("skill_name")))
        if not isinstance(skill, Skill):
            return None
        try:
            content = await asyncio.to_thread(skill.read, path, max_bytes=MAX_RESOURCE_BYTES)
        except (ForbiddenPath, OverflowError):
            return None
        if content is None:
            return None
        media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        return Content(
            role="user",
            parts=[Part(text=f"{path} of skill {skill.name}:"), Part.from_bytes(data=content, mime_type=media_type)],
        )


class RunSkillScriptTool(SkillTool):
    """A script may have effects, so a call that was cut off is not made again."""

    def __init__(self, catalog: SkillCatalog, runner: ScriptRunner | None, *, timeout_seconds: float) -> None:
        either: JsonObject = {
            "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "string"}}],
            "description": "Long options by name (true for one without a value), or the whole command line as a list.",
        }
        path = {"type": "string", "description": "Path of the script in the skill, such as scripts/run.py."}
        short = {"type": "object", "description": "Options of one letter, by letter."}
        positions = {"type": "array", "items": {"type": "string"}, "description": "What follows the options."}
        super().__init__(
            catalog,
            "run_skill_script",
            "Runs a script of a skill, and returns what it prints.",
            Argument("skill_name", NAME, True),
            Argument("file_path", path, True),
            Argument("args", either),
            Argument("short_options", short),
            Argument("positional_args", positions),
        )
        self.on_interrupt = "report"
        self._runner = runner
        self._timeout_seconds = timeout_seconds

    async def answer(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        skill = await self._find(args["skill_name"])
        if not isinstance(skill, Skill):
            return skill
        path = _script_path(args["file_path"])
        found = await _read(skill, path, "SCRIPT_NOT_FOUND", tool_context)
        if isinstance(found, dict):
            return found
        try:
            command = script_command(path, args)
        except UnsupportedScript:
            return error("UNSUPPORTED_SCRIPT_TYPE", f"{path} can't be run; only .py, .sh and .bash can")
        except ValueError as fault:
            return error("INVALID_ARGUMENTS", str(fault))
        runner, seconds = self._runner, self._timeout_seconds
        if runner is None:
            return error("NO_CODE_EXECUTOR", "nothing is set up here that could run scripts")
        try:
            told = await run_script(runner, skill, command, tool_context, timeout_seconds=seconds)
        except TimeoutError:
            return error("EXECUTION_ERROR", f"{path} was stopped after {seconds:g} seconds")
        except Exception as fault:  # whatever runs code may fail in any way
            return error("EXECUTION_ERROR", f"{path} could not be run: {str(fault)[:200]}")
        return {"skill_name": skill.name, "file_path": path, **told}


async def _read(skill: Skill, path: str, code: str, tool_context: ToolContext) -> bytes | JsonObject:
    """The file, or what to tell the model: the second time in a run, to stop guessing."""
    try:
        content = await asyncio.to_thread(skill.read, path, max_bytes=MAX_RESOURCE_BYTES)
    except ForbiddenPath:
        return error("INVALID_RESOURCE_PATH", f"{path!r} must be a path in one of {', '.join(FOLDERS)}")
    except OverflowError:
        return error("RESOURCE_TOO_LARGE", f"{path!r} is larger than {MAX_RESOURCE_BYTES} bytes")
    if content is not None:
        return content
    key = f"{TEMP_PREFIX}_skill_files_missed_{tool_context.agent_name}"
    before: Any = tool_context.state.get(key)
    tool_context.state[key] = tool_context.invocation_id
    if before == tool_context.invocation_id:
        return error(f"{code}_FATAL", f"skill {skill.name!r} has no {path!r} either; don't guess again")
    return error(code, f"skill {skill.name!r} has no {path!r}")


def _script_path(path: str) -> str:
    return path if "/" in path else f"scripts/{path}"


def _as_text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
