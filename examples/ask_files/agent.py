"""Questions and answers over a folder: the agent searches the files of `handbook` by words and by meaning, and cites
the file and the lines of what it says. A citation of something that it hasn't read is marked as such.

Try: "May I work from Portugal for a while?" `ASK_FILES` names a folder of your own, with text, Markdown, HTML, CSV and
JSON; `EMBEDDINGS` names another model of embeddings, such as `openai/text-embedding-3-small`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from greenroom import BaseTool, CallbackContext, FilesRetrieval, LlmAgent, LlmResponse, ToolContext

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
EMBEDDINGS = os.environ.get("EMBEDDINGS") or "local/smollm2-135m"
FOLDER = os.environ.get("ASK_FILES") or Path(__file__).with_name("handbook")

CITATION = re.compile(r"\[([^\[\]]+), (lines? [\d-]+)\]")

search = FilesRetrieval(
    name="search_files",
    description="Finds passages of the company's handbook. Search again in other words if nothing fits.",
    input_dir=FOLDER,
    embeddings=EMBEDDINGS,
    max_passages=4,
    passage_length=400,
    passage_overlap=50,
)


def note_passages(
    tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, tool_response: dict[str, Any]
) -> None:
    """Notes which passages the model has read."""
    found = [f"{passage['file']}, {passage['position']}" for passage in tool_response.get("passages", ())]
    tool_context.state["read"] = sorted({*tool_context.state.get("read", ()), *found})


def check_citations(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse:
    """Marks citations of passages that the model hasn't read."""
    read = callback_context.state.get("read", ())
    for part in (llm_response.content and llm_response.content.parts) or ():
        if part.text and not llm_response.partial:
            part.text = CITATION.sub(
                lambda found: found[0] if f"{found[1]}, {found[2]}" in read else f"[not read: {found[1]}]", part.text
            )
    return llm_response


root_agent = LlmAgent(
    name="ask_files",
    model=MODEL,
    description="Answers questions about the company's handbook, with citations.",
    instruction="Answer questions about the handbook. Search before you answer, and say only what the passages say; if "
    "they don't answer the question, say that the handbook doesn't. End each sentence with its file and lines in "
    "brackets, like [leave.md, lines 3-9].",
    tools=[search],
    after_tool_callback=note_passages,
    after_model_callback=check_citations,
)
