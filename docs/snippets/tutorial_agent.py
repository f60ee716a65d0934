import os

from greenroom import FunctionTool, LlmAgent, ToolContext

ORDERS = {"A-1": {"item": "lamp", "price": 40}, "A-2": {"item": "sofa", "price": 900}}


def find_order(order: str) -> dict[str, object]:
    """Finds an order by its number.

    Args:
        order: The number, as A-1.
    """
    return {"order": order, **ORDERS[order]} if order in ORDERS else {"error": f"There is no order {order}."}


def refund(order: str, amount: float, tool_context: ToolContext) -> dict[str, object]:
    """Pays money back for an order."""
    return {"status": "refunded", "order": order, "amount": amount, "key": tool_context.idempotency_key}


def is_large(amount: float) -> bool:
    return amount > 100


root_agent = LlmAgent(
    name="desk",
    model=os.environ.get("DESK_MODEL", "local/smollm2-135m"),
    instruction="You answer questions about orders, and refund them when the customer asks.",
    tools=[find_order, FunctionTool(refund, require_confirmation=is_large)],
)
