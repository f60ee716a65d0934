"""A data analyst: attach a CSV file and ask about it. It writes Python, which runs in a sandbox without network; the
charts that it draws are artifacts of the session, and so are the files that you attach.

Try it with sales.csv from this folder: "Draw the revenue by month."
"""

from __future__ import annotations

import os

from greenroom import App, LlmAgent, SaveFilesAsArtifactsPlugin, WorkspaceToolset

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

root_agent = LlmAgent(
    name="data_analyst",
    model=MODEL,
    description="Answers questions about the data in attached files.",
    instruction=(
        "You analyse data for a user. Attached files are in your workspace. Look at a file's first lines before you "
        "use it, and compute with run_python; only Python's standard library is there. Draw charts as SVG files. "
        "Report the numbers that you saw printed, and the names of the files that you wrote."
    ),
    tools=[WorkspaceToolset()],
)

app = App(name="data_analyst", root_agent=root_agent, plugins=[SaveFilesAsArtifactsPlugin()])
