"""An order desk: orders of more than 100 EUR wait for a person's approval; the carrier is asked again when it fails.

It needs no model. Send a text like "3 lamps" or "20 lamps"; answer the request with {"approved": true} or
{"approved": false}. Kill the server at any point: the order continues where it stopped.
"""

from __future__ import annotations

import re

from pydantic import BaseModel

from greenroom import Context, Event, RequestInput, RetryConfig, Workflow, node

PRICES = {"lamp": 30.0, "chair": 80.0, "desk": 240.0}
LIMIT = 100.0


class Decision(BaseModel):
    approved: bool
    reason: str = ""


def read_order(node_input: str, ctx: Context) -> Event:
    """Reads the number and the article; the price decides who may accept the order."""
    found = re.search(r"(\d+)\s+(\w+?)s?\b", node_input.lower())
    if found is None or found[2] not in PRICES:
        return Event(output=f"I sell {', '.join(PRICES)}: write how many of which.", route="unknown")
    price = int(found[1]) * PRICES[found[2]]
    ctx.state["order"] = {"article": found[2], "count": int(found[1]), "price": price}
    return Event(output=ctx.state["order"], route="large" if price > LIMIT else "small")


@node(rerun_on_resume=True)
async def ask_manager(ctx: Context, order: dict[str, object]):
    """Waits for a person, for as long as it takes."""
    answer = ctx.resume_inputs.get("approval")
    if answer is None:
        yield RequestInput(
            interrupt_id="approval", message="Accept this order?", payload=order, response_schema=Decision
        )
    else:
        yield Event(output=answer, route="accepted" if answer["approved"] else "refused")


@node(retry_config=RetryConfig(max_attempts=4, initial_delay=0.2), on_interrupt="retry")
def ship(ctx: Context, order: dict[str, object]) -> dict[str, object]:
    """Books the carrier, whose line is bad: the first attempt of each order fails."""
    if ctx.attempt_count == 1:
        raise ConnectionError("the carrier does not answer")
    return {**order, "shipment": ctx.idempotency_key[:8]}


def confirm(node_input: dict[str, object]) -> Event:
    return Event(message=f"Shipped: {node_input['count']} {node_input['article']}s, {node_input['price']} EUR.")


def refuse(node_input: dict[str, object]) -> Event:
    return Event(message=f"The order was refused. {node_input.get('reason') or ''}".strip())


def explain(node_input: str) -> Event:
    return Event(message=node_input)


root_agent = Workflow(
    name="order_desk",
    description="Takes orders; large ones wait for a person.",
    edges=[
        ("START", read_order, {"small": ship, "large": ask_manager, "unknown": explain}),
        (ask_manager, {"accepted": ship, "refused": refuse}),
        (ship, confirm),
    ],
)
