"""An assistant for the files of one folder, with the tools of MCP's filesystem server. It reads by itself; a person
approves all that writes, moves or edits a file.

Try: "Which of my notes are about the garden? Put them into one file." `FILES` names the folder, `files` by default. The
server is fetched by `npx` when the first question is asked; `FILE_SERVER` is another command that starts one.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from greenroom import LlmAgent, McpToolset, StdioServerParameters

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
FOLDER = os.environ.get("FILES") or str(Path(__file__).with_name("files"))
COMMAND, *ARGUMENTS = shlex.split(os.environ.get("FILE_SERVER") or "npx -y @modelcontextprotocol/server-filesystem")
SERVER = StdioServerParameters(command=COMMAND, args=[*ARGUMENTS, FOLDER])

reading = McpToolset(
    connection_params=SERVER,
    tool_filter=["list_directory", "search_files", "read_text_file", "read_multiple_files", "get_file_info"],
)
writing = McpToolset(
    connection_params=SERVER,
    tool_filter=["write_file", "edit_file", "move_file", "create_directory"],
    require_confirmation=True,
)

root_agent = LlmAgent(
    name="file_assistant",
    model=MODEL,
    description="Finds, reads and tidies up files.",
    instruction=f"You look after the files in {FOLDER}. Look before you write: list the folder, and read a file before "
    "you change it. A person approves each change, who is asked without your doing; if they refuse, leave it.",
    tools=[reading, writing],
)
