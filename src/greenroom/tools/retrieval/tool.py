"""The base class of retrieval tools."""

from __future__ import annotations

from greenroom.records.base import JsonObject
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool, OnInterrupt


class BaseRetrievalTool(BaseTool):
    """A tool with one parameter, `query`. Calls have no side effects, so an interrupted call is repeated."""

    def __init__(
        self,
        *,
        name: str,
        description: str,
        on_interrupt: OnInterrupt = "retry",
        custom_metadata: JsonObject | None = None,
    ) -> None:
        super().__init__(
            name=name,
            description=description,
            on_interrupt=on_interrupt,
            custom_metadata=custom_metadata,
        )

    def _get_declaration(self) -> FunctionDeclaration | None:
        query = {"type": "string", "description": "What to search for, in words that the wanted text may contain."}
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            # ADK doesn't require it, and small models leave out what isn't required.
            parameters_json_schema={"type": "object", "properties": {"query": query}, "required": ["query"]},
        )


def query_in(args: JsonObject) -> str:
    """Empty when the model gave none."""
    query = args.get("query")
    return query.strip() if isinstance(query, str) else ""


NO_QUERY: JsonObject = {"error": "Give what to search for in `query`."}


def nothing_found(query: str, where: str) -> str:
    return f"Nothing in {where} matches the query: {query}"
