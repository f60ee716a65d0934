"""1,000 parallel workers, all of which wait for one another, and what they found."""

import asyncio

from greenroom import Workflow, node

WORKERS = 1_000


def items() -> list[int]:
    return list(range(WORKERS))


@node(parallel_worker=True)
async def work(node_input: int) -> str:
    await asyncio.sleep(0.05)
    return f"found {node_input}"


def end(node_input: list[str]) -> str:
    return "reached the end" if len(node_input) == WORKERS else "lost some"


root_agent = Workflow(name="fan", edges=[("START", items, work, end)])
