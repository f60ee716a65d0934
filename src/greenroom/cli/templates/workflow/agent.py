"""A workflow, which needs no model: large orders wait for a person. Send it a text like "20 lamps"."""

import re

from greenroom import Context, Event, RequestInput, Workflow, node

PRICE = 30.0
LIMIT = 100.0


def read_order(node_input: str, ctx: Context) -> Event:
    """Reads how many lamps are ordered. The route says who accepts the order."""
    found = re.search(r"\d+", node_input)
    if found is None:
        return Event(output="Write how many lamps you want.", route="unknown")
    ctx.state["lamps"] = int(found[0])
    return Event(output=ctx.state["lamps"] * PRICE, route="large" if ctx.state["lamps"] * PRICE > LIMIT else "small")


@node(rerun_on_resume=True)
async def ask_manager(ctx: Context, node_input: float):
    """Waits for a person, for as long as it takes. The answer is {"approved": true} or {"approved": false}."""
    answer = ctx.resume_inputs.get("approval")
    if answer is None:
        yield RequestInput(interrupt_id="approval", message=f"Accept an order of {node_input} EUR?")
    else:
        yield Event(output=answer, route="accepted" if answer.get("approved") else "refused")


def accept(ctx: Context) -> Event:
    return Event(message=f"Accepted: {ctx.state['lamps']} lamps.")


def refuse() -> Event:
    return Event(message="The order was refused.")


def explain(node_input: str) -> Event:
    return Event(message=node_input)


root_agent = Workflow(
    name="my_agent",
    edges=[
        ("START", read_order, {"small": accept, "large": ask_manager, "unknown": explain}),
        (ask_manager, {"accepted": accept, "refused": refuse}),
    ],
)
