"""A librarian whose tools come from an MCP server, `server.py`, which is started when the first question is asked.

`GREENROOM_MODEL` names another model.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from greenroom import LlmAgent, McpToolset, StdioConnectionParams, StdioServerParameters

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

library = McpToolset(
    connection_params=StdioConnectionParams(
        StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("server.py"))]),
        timeout=20,
    ),
    use_mcp_resources=True,
)

root_agent = LlmAgent(
    name="librarian",
    model=MODEL,
    description="Finds and reserves books.",
    instruction="You work at a library. Search before you answer, and reserve a book only by the number that the "
    "search gave you, for the reader {user:name?}. If a book is lent, say so.",
    tools=[library],
)
