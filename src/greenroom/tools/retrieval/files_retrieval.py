"""Looks things up in local files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.retrieval.file_index import FileIndex, Limits
from greenroom.tools.retrieval.tool import NO_QUERY, BaseRetrievalTool, nothing_found, query_in


class FilesRetrieval(BaseRetrievalTool):
    """Finds passages by their words, ranked by BM25; needs no network. Text, Markdown, HTML, CSV and JSON are read.

    input_dir: a folder, or one file; changes are noticed at the next search. index_path: a database file of the index's
    own, so that a restart needn't read everything again; without it the index is in memory. passage_length,
    passage_overlap: characters. Larger files than max_file_bytes, and those beyond max_files, are left out with a
    warning. Raises AgentConfigError.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str,
        input_dir: str | Path,
        index_path: str | Path | None = None,
        max_passages: int = 5,
        passage_length: int = 1200,
        passage_overlap: int = 200,
        max_file_bytes: int = 10 * 1024 * 1024,
        max_files: int = 10_000,
    ) -> None:
        super().__init__(name=name, description=description)
        self.input_dir = Path(input_dir).expanduser()
        self.max_passages = max_passages
        if not self.input_dir.exists():
            raise AgentConfigError(f"Tool {name!r} looks into {str(self.input_dir)!r}, which does not exist")
        if not 0 <= passage_overlap <= passage_length // 2 or passage_length < 2:
            raise AgentConfigError(f"Tool {name!r}: passage_overlap must be at most half of passage_length")
        self._index = FileIndex(
            self.input_dir,
            Path(index_path).expanduser() if index_path is not None else None,
            length=passage_length,
            overlap=passage_overlap,
            limits=Limits(max_file_bytes, max_files),
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """`{"passages": [{"file", "position", "text"}]}`, best first, or a text when nothing was found."""
        query = query_in(args)
        if not query:
            return NO_QUERY
        hits = await asyncio.to_thread(self._index.search, query, self.max_passages)
        return {"passages": [hit._asdict() for hit in hits]} if hits else nothing_found(query, "the files")
