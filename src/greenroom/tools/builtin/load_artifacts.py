"""Lets a model look into the session's artifacts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from greenroom.artifacts.service import USER_NAMESPACE
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.builtin.artifact_contents import readable_part
from greenroom.tools.tool import BaseTool

_STATUS = (
    "artifact contents temporarily inserted and removed. to access these artifacts, call load_artifacts tool again."
)
"""Source: ADK, which answers with the same value."""

ProcessArtifact: TypeAlias = Callable[[str, Part], Part | Awaitable[Part | None] | None]


class LoadArtifactsTool(BaseTool):
    """Each request lists the artifacts' names; what the model asked for is shown in the request that follows its call.

    process_artifact: called with an artifact's name and part, as loaded; answers with the part that the model is shown,
    or with None to leave the artifact out.
    """

    def __init__(self, *, process_artifact: ProcessArtifact | None = None) -> None:
        super().__init__(
            name="load_artifacts",
            description="Shows you the contents of artifacts, for your next answer only.",
            on_interrupt="retry",
        )
        self.process_artifact = process_artifact

    @property
    def load_artifacts_tool(self) -> LoadArtifactsTool:
        """The tool itself, for code that takes the name for ADK's module."""
        return self

    def _get_declaration(self) -> FunctionDeclaration:
        names = {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of the artifacts to look into, as they are listed in your instructions.",
        }
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema={"type": "object", "properties": {"artifact_names": names}},
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        names = _names(args.get("artifact_names"))
        if names is None:
            return {"error": "'artifact_names' must be a list of strings.", "error_code": "INVALID_ARGUMENTS"}
        return {"artifact_names": names, "status": _STATUS}

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
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
        for name in self._asked_for(llm_request.contents):
            found = _find(name, existing)
            part = await tool_context.load_artifact(found) if found is not None else None
            shown = await self._shown(name, part) if part is not None else None
            if shown is not None:
                parts = [Part(text=f"Artifact {name} is:"), shown]
                llm_request.contents.append(Content(role="user", parts=parts))

    def _asked_for(self, contents: Sequence[Content]) -> list[str]:
        names: dict[str, None] = {}
        for part in (contents[-1].parts if contents else None) or ():
            response = part.function_response
            if response is not None and response.name == self.name:
                names.update(dict.fromkeys(_names((response.response or {}).get("artifact_names")) or ()))
        return list(names)

    async def _shown(self, name: str, part: Part) -> Part | None:
        if self.process_artifact is not None:
            chosen = self.process_artifact(name, part)
            chosen = await chosen if inspect.isawaitable(chosen) else chosen
            if chosen is not part:
                return chosen
        return readable_part(name, part)


def _names(value: JsonValue) -> list[str] | None:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in cast("list[Any]", value)):
        return None
    return cast("list[str]", value)


def _find(name: str, existing: list[str]) -> str | None:
    """The artifact's own name: models drop the `user:` of a name, or put it where it doesn't belong."""
    candidates = (name, USER_NAMESPACE + name, name.removeprefix(USER_NAMESPACE))
    return next((candidate for candidate in candidates if candidate in existing), None)


load_artifacts = LoadArtifactsTool()
load_artifacts_tool = load_artifacts
"""ADK's name, which is also that of the module that holds the tool; both uses work."""
