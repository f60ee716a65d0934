"""Base of the tools that show contents by name, and the tool for the session's artifacts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from greenroom.artifacts.service import USER_NAMESPACE
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.builtin.artifact_contents import readable_part
from greenroom.tools.tool import BaseTool, newest_responses

_STATUS = (
    "artifact contents temporarily inserted and removed. to access these artifacts, call load_artifacts tool again."
)
"""Source: ADK, which answers with the same value."""

ProcessArtifact: TypeAlias = Callable[[str, Part], Part | Awaitable[Part | None] | None]


class LoadContentsTool(BaseTool):
    """Takes names of contents, which it adds to the request that follows its call.

    contents: the plural noun for the named things.
    status: of the response.
    """

    def __init__(self, name: str, description: str, *, contents: str, status: str) -> None:
        super().__init__(name=name, description=description, on_interrupt="retry")
        self._contents = contents
        self._argument = f"{contents.removesuffix('s')}_names"
        self._status = status

    def _get_declaration(self) -> FunctionDeclaration:
        names: JsonObject = {
            "type": "array",
            "items": {"type": "string"},
            "description": f"Names of the {self._contents} to look into, as they are listed in your instructions.",
        }
        schema: JsonObject = {"type": "object", "properties": {self._argument: names}}
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=schema,
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        names: JsonValue = args.get(self._argument) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in cast("list[Any]", names)):
            return {"error": f"{self._argument!r} must be a list of strings.", "error_code": "INVALID_ARGUMENTS"}
        return {self._argument: cast("list[str]", names), "status": self._status}

    def requested_names(self, llm_request: LlmRequest) -> list[str]:
        """The names in the newest responses of this tool, each once."""
        responses = newest_responses(self.name, llm_request)
        return list(dict.fromkeys(name for response in responses for name in response.get(self._argument) or ()))


class LoadArtifactsTool(LoadContentsTool):
    """Lists the names of the session's artifacts in each request, and shows those that the model
    asks for.

    process_artifact: called with an artifact's name and part, as loaded; returns the part that the
    model is shown, or None to leave the artifact out.
    """

    def __init__(self, *, process_artifact: ProcessArtifact | None = None) -> None:
        description = "Shows you the contents of artifacts, for your next answer only."
        super().__init__("load_artifacts", description, contents="artifacts", status=_STATUS)
        self.process_artifact = process_artifact

    @property
    def load_artifacts_tool(self) -> LoadArtifactsTool:
        """The tool itself, for code that expects ADK's module of this name."""
        return self

    @property
    def LoadArtifactsTool(self) -> type[LoadArtifactsTool]:  # noqa: N802
        """The class, for code that takes the name for ADK's module."""
        return LoadArtifactsTool

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

        existing = await tool_context.list_artifacts()
        if not existing:
            return

        llm_request.append_instructions(
            [
                f"These artifacts exist, by name: {json.dumps(existing, ensure_ascii=False)}\n"
                "You see only their names. Before you say anything about what is in one of them, call "
                f"`{self.name}` with its name."
            ]
        )

        for name in self.requested_names(llm_request):
            filename = _find(name, existing)
            if filename is not None:
                part = await tool_context.load_artifact(filename)
            else:
                part = None

            if part is not None:
                shown = await self._shown(name, part)
            else:
                shown = None

            if shown is not None:
                parts = [Part(text=f"Artifact {name} is:"), shown]
                llm_request.contents.append(Content(role="user", parts=parts))

    async def _shown(self, name: str, part: Part) -> Part | None:
        if self.process_artifact is not None:
            chosen = self.process_artifact(name, part)
            if inspect.isawaitable(chosen):
                chosen = await chosen
            else:
                chosen = chosen
            if chosen is not part:
                return chosen

        return readable_part(name, part)


def _find(name: str, existing: list[str]) -> str | None:
    """The artifact's own name: models omit the `user:` of a name, or add it to others."""
    candidates = (name, USER_NAMESPACE + name, name.removeprefix(USER_NAMESPACE))
    return next((candidate for candidate in candidates if candidate in existing), None)


load_artifacts = LoadArtifactsTool()
load_artifacts_tool = load_artifacts
"""ADK's name, which is also that of the module that holds the tool; both uses work."""
