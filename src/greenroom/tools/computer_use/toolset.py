"""Toolset by which Gemini controls a computer.

Source of names, arguments and results: ADK's computer use toolset and the Gemini API's predefined
functions, some of which have other names from Gemini 3 on.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import math
import mimetypes
import re
from collections.abc import Collection
from typing import Any, cast
from urllib.parse import urlsplit

from greenroom.errors import GreenroomError, MissingExtra, ToolError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.models.gemini.contents import gemini_version
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import Tool
from greenroom.tools.builtin.model_side import ModelSideTool
from greenroom.tools.computer_use.computer import (
    BaseComputer,
    ComputerEnvironment,
    ComputerState,
    Direction,
    DownloadedFile,
)
from greenroom.tools.confirmation import awaiting_confirmation
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.result import to_response
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset

MAX_WAIT_SECONDS = 30
VIRTUAL_SIZE = 1000
"""The model's coordinates go from 0 to this, in both directions."""

_DOWNLOADS_FOLDER = "downloads"
_MAX_NAME_CHARS = 50

_FUNCTIONS = (
    "open_web_browser", "click_at", "hover_at", "type_text_at", "scroll_document", "scroll_at", "go_back", "go_forward",
    "search", "navigate", "key_combination", "drag_and_drop",
)  # fmt: skip
_OPTIONAL_FUNCTIONS = (
    "double_click", "triple_click", "middle_click", "right_click", "mouse_down", "mouse_up", "key_down", "key_up",
)  # fmt: skip
_NEWER_NAMES = {
    "click_at": ("click",),
    "hover_at": ("move",),
    "type_text_at": ("type",),
    "scroll_at": ("scroll",),
    "current_state": ("take_screenshot",),
    "key_combination": ("press_key", "hotkey"),
    "wait_5_seconds": ("wait",),
}
"""Names from Gemini 3 on, by the older one."""

_RENAMED_ARGUMENTS = {
    "start_x": "x",
    "start_y": "y",
    "end_x": "destination_x",
    "end_y": "destination_y",
}
_AXES = {"x": 0, "y": 1, "destination_x": 0, "destination_y": 1}


class ComputerUseToolset(BaseToolset):
    """Offers the functions of a computer to Gemini, which knows them without declarations.

    The computer is initialized before its first action, and closed with the toolset. A call that
    Gemini marks as risky waits for a person's approval.

    excluded_predefined_functions: those that the model is not offered, by their older or newer
        name.
    allow_private_network_access: else `navigate` refuses addresses that aren't public. Links and
        redirects of pages are not checked: keep the computer where it can't reach private services,
        or limit the hosts of PlaywrightComputer.
    """

    def __init__(
        self,
        *,
        computer: BaseComputer,
        excluded_predefined_functions: Collection[str] | None = None,
        allow_private_network_access: bool = False,
    ) -> None:
        super().__init__()
        self.computer = computer
        self.allows_private = allow_private_network_access
        self._is_initialized = False
        excluded = {"type_text_at" if name == "type_text" else name for name in excluded_predefined_functions or ()}
        self._excluded = excluded | _counterparts(excluded)
        newer = _NewerFunctions(computer)
        functions = {name: getattr(computer, name) for name in _FUNCTIONS}
        functions |= {name: getattr(newer, name) for name in (*newer.names, "wait", "wait_5_seconds")}
        own = (*newer.names, *_OPTIONAL_FUNCTIONS)
        functions |= {name: getattr(computer, name) for name in own if _implements(computer, name)}
        if type(computer).type_text is BaseComputer.type_text and not _implements(computer, "type"):
            del functions["type"]

        self._missing = [name for name in (*_OPTIONAL_FUNCTIONS, "type") if name not in functions]
        self._tools: list[BaseTool] = [
            ComputerUseTool(self, name, function) for name, function in functions.items() if name not in self._excluded
        ]

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return list(self._tools)

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        """Raises AgentConfigError for models that are no Gemini from 2 on."""
        is_newer = (gemini_version(llm_request.model) or 0) >= 3
        older_names = set(_NEWER_NAMES)
        newer_names = {name for names in _NEWER_NAMES.values() for name in names}
        excluded = self._excluded - (older_names if is_newer else newer_names)
        if is_newer:
            excluded = excluded | set(self._missing)

        environment = await self.computer.environment()
        options: JsonObject = {
            "environment": environment
            if environment in ComputerEnvironment
            else ComputerEnvironment.ENVIRONMENT_BROWSER
        }
        if excluded:
            options["excludedPredefinedFunctions"] = sorted(excluded)

        entry = ModelSideTool(
            "computer_use",
            "Controls a computer.",
            Tool(computer_use=options),
            since_gemini=2,
        )
        await entry.process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def prepare(self, tool_context: ToolContext) -> None:
        """Makes the computer ready for an action; called with its lock."""
        if not self._is_initialized:
            await self.computer.initialize()
            self._is_initialized = True
        await self.computer.prepare(tool_context)

    async def close(self) -> None:
        if self._is_initialized:
            self._is_initialized = False
            await self.computer.close()


class ComputerUseTool(FunctionTool):
    """Calls a function of a computer. Its responses hold the screen and the URL, as Gemini requires."""

    handles_rejection = True

    def __init__(self, toolset: ComputerUseToolset, name: str, function: Any) -> None:
        super().__init__(function, name=name)
        self._toolset = toolset

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        """Declares nothing: the toolset adds one entry for all functions."""
        llm_request.tools_dict[self.name] = self

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        answer = tool_context.tool_confirmation

        safety_decision = args.get("safety_decision")
        if isinstance(safety_decision, dict):
            decision = cast("JsonObject", safety_decision)
        else:
            decision = {}

        if answer is None and decision.get("decision") == "require_confirmation":
            hint = str(decision.get("explanation") or f"The model asks for an approval of {self.name}.")
            tool_context.request_confirmation(hint=hint)
            tool_context.actions.skip_summarization = True
            return awaiting_confirmation(self.name)

        computer = self._toolset.computer
        async with computer.lock:
            await self._toolset.prepare(tool_context)

            try:
                if answer is not None and not answer.confirmed:
                    raise ToolError(f"{self.name} has not run: a person rejected the call.")
                result = await self._act(args, tool_context)
            except ToolError as error:
                result = {"error": error.detail}

            if isinstance(result, ComputerState):
                image = {"mimetype": "image/png", "data": base64.b64encode(result.screenshot or b"").decode()}
                response: JsonObject = {"image": image, "url": result.url}
                if result.downloads:
                    response["downloads"] = [await _save(file, tool_context) for file in result.downloads]
            else:
                response = to_response(result)

            if "error" in response:
                with contextlib.suppress(ToolError):  # the model gets the first error, not that of the picture
                    response["url"] = (await computer.current_state()).url
            elif answer is not None:
                response["safety_acknowledgement"] = "true"

        return response

    async def _act(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        args = {_RENAMED_ARGUMENTS.get(name, name): value for name, value in args.items()}
        size = await self._toolset.computer.screen_size()
        for name, axis in _AXES.items():
            if isinstance(args.get(name), (int, float)):
                args[name] = max(
                    0,
                    min(int(args[name] / VIRTUAL_SIZE * size[axis]), size[axis] - 1),
                )

        if isinstance(keys := args.get("keys"), str):
            args["keys"] = keys.split("+")

        if self.name == "navigate":
            await self._check_url(args.get("url"))

        return await super().run_async(args=args, tool_context=tool_context)

    async def _check_url(self, url: JsonValue) -> None:
        """Raises ToolError."""
        try:
            parts = urlsplit(url) if isinstance(url, str) else None
            port = parts.port if parts is not None else None
        except ValueError:
            parts = None
            port = None

        # Browsers end the host at a backslash, where urlsplit does not.
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or "\\" in parts.netloc:
            raise ToolError("navigate takes an address that begins with http:// or https://")
        if self._toolset.allows_private:
            return

        try:
            from greenroom.tools.web.address_guard import public_addresses
        except ImportError as error:
            raise MissingExtra("browser", "httpx") from error

        try:
            await public_addresses(parts.hostname, port or (443 if parts.scheme == "https" else 80))
        except OSError as error:
            raise ToolError(f"the host {parts.hostname!r} could not be found") from error


async def _save(file: DownloadedFile, tool_context: ToolContext) -> JsonObject:
    """Saves a downloaded file as an artifact; returns what the model gets to know of it."""
    if file.data is None:
        return {"name": file.name, "error": file.error}

    # In a folder, since a page, which chooses the name, must not replace other files of the session.
    name = f"{_DOWNLOADS_FOLDER}/{_file_name(file.name)}"
    mime_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    try:
        version = await tool_context.save_artifact(name, Part.from_bytes(data=file.data, mime_type=mime_type))
    except GreenroomError as error:  # the page was shown all the same
        return {"name": file.name, "error": f"the file could not be saved: {error.detail}"}

    return {"artifact": name, "version": version, "size_bytes": len(file.data)}


def _file_name(suggested: str) -> str:
    """A name without folders and special characters, with its ending."""
    name = re.sub(r"[^\w. ()+-]", "_", re.split(r"[/\\]", suggested)[-1]).strip(". ")
    stem, dot, ending = name.rpartition(".")
    return f"{stem[:_MAX_NAME_CHARS]}{dot}{ending[:_MAX_NAME_CHARS]}" or "file"


class _NewerFunctions:
    """The functions whose names or arguments differ from the computer's own."""

    names = ("click", "move", "type", "scroll", "take_screenshot", "press_key", "hotkey")

    def __init__(self, computer: BaseComputer) -> None:
        self._computer = computer

    async def click(self, x: int, y: int) -> ComputerState:
        return await self._computer.click_at(x, y)

    async def move(self, x: int, y: int) -> ComputerState:
        return await self._computer.hover_at(x, y)

    async def type(self, text: str, press_enter: bool = False) -> ComputerState:
        return await self._computer.type_text(text, press_enter)

    async def scroll(
        self, x: int, y: int, direction: Direction = "down", magnitude_in_pixels: int = 300
    ) -> ComputerState:
        return await self._computer.scroll_at(x, y, direction, magnitude_in_pixels)

    async def take_screenshot(self) -> ComputerState:
        return await self._computer.current_state()

    async def press_key(self, key: str) -> ComputerState:
        return await self._computer.key_combination([key])

    async def hotkey(self, keys: list[str]) -> ComputerState:
        return await self._computer.key_combination(keys)

    async def wait(self, seconds: float = 1) -> ComputerState:
        return await self._computer.wait(min(max(math.ceil(seconds), 0), MAX_WAIT_SECONDS))

    async def wait_5_seconds(self) -> ComputerState:
        return await self._computer.wait(5)


def _counterparts(names: Collection[str]) -> set[str]:
    """The same functions under the names of other versions of Gemini. An older function is excluded
    if all of its newer ones are.
    """
    newer = {name for older in names for name in _NEWER_NAMES.get(older, ())}
    return newer | {older for older, those in _NEWER_NAMES.items() if set(those) <= set(names)}


def _implements(computer: BaseComputer, name: str) -> bool:
    return inspect.iscoroutinefunction(getattr(computer, name, None))
