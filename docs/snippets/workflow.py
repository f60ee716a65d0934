from typing import Any

from pydantic import BaseModel

from greenroom import DEFAULT_ROUTE, Context, Event, JoinNode, RequestInput, RetryConfig, Workflow, node


class Party(BaseModel):
    guests: int
    accepted: bool


def read_order(node_input: str, ctx: Context) -> Event:
    ctx.state["order"] = node_input
    return Event(output=node_input, route="large" if "party" in node_input else "small")


@node(rerun_on_resume=True)
async def ask_manager(ctx: Context, node_input: str):
    answer = ctx.resume_inputs.get("large")
    if answer is None:
        yield RequestInput(interrupt_id="large", message=f"Take {node_input}?", response_schema=Party)
    else:
        yield {"order": node_input, "guests": answer["guests"]}


@node(retry_config=RetryConfig(max_attempts=3), on_interrupt="retry", timeout=10)
async def book(node_input: Any) -> dict[str, Any]:
    return {"booked": node_input}


def kitchen(node_input: Any) -> str:
    return "menu planned"


def bar(node_input: Any) -> str:
    return "drinks ordered"


def summary(node_input: dict[str, str], order: str) -> str:
    return f"{order}: {node_input['kitchen']}, {node_input['bar']}"


root_agent = Workflow(
    name="party",
    edges=[
        ("START", read_order, {"large": ask_manager, DEFAULT_ROUTE: book}),
        (ask_manager, book, (kitchen, bar), JoinNode(name="both"), summary),
    ],
)
