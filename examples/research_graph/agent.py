"""A research team as a workflow: one worker for each source, side by side, then a join and a writer.

It is the team of `parallel_research` as a graph. The sources are made up, so everything works offline.
`GREENROOM_MODEL` names another model.
"""

from __future__ import annotations

import os

from greenroom import Context, JoinNode, LlmAgent, Workflow, node

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

SOURCES = {
    "newspaper": "Sales of heat pumps grew by 12% last year.",
    "study": "In 412 houses a heat pump used 3.1 times less energy than the boiler before it.",
    "price list": "An air heat pump of 8 kW costs 9800 EUR, 6% less than a year ago.",
}

summarizer = LlmAgent(
    name="summarizer", model=MODEL, instruction="Sum up the note in one sentence, and write nothing else."
)


def sources(ctx: Context, node_input: str) -> list[str]:
    ctx.state["topic"] = node_input
    return list(SOURCES)


@node(parallel_worker=True, max_parallel_workers=2, rerun_on_resume=True, on_interrupt="retry")
async def read(ctx: Context, node_input: str) -> dict[str, str]:
    return {"source": node_input, "summary": await ctx.run_node(summarizer, SOURCES[node_input])}


def outline(node_input: str) -> str:
    return f"Three sentences about {node_input}: what is new, what was measured, what it costs."


writer = LlmAgent(
    name="writer",
    model=MODEL,
    instruction="Write the report that the outline asks for, out of the notes that were read, and nothing else.",
)

root_agent = Workflow(
    name="research_graph",
    description="Researches a topic and reports on it.",
    edges=[
        ("START", sources, read, material := JoinNode(name="material"), writer),
        ("START", outline, material),
    ],
)
