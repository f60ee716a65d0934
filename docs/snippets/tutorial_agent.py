import os

from greenroom import FunctionTool, LlmAgent, ToolContext

ORDERS = {"A-1": ("lamp", 40), "A-2": ("sofa", 900)}


def find_order(order: str) -> dict[str, object]:
    """Finds an order by its number.

    Args:
        order: The number, as A-1.
    """
    if order not in ORDERS:
        return {"error": f"There is no order {order}."}
    item, price = ORDERS[order]
    return {"order": order, "item": item, "price": price}


def refund(order: str, tool_context: ToolContext) -> dict[str, object]:
    """Pays the money back for an order.

    Args:
        order: The number, as A-1.
    """
    print(f"Paid back for {order}, with the key {tool_context.idempotency_key}")
    return {"status": "refunded", "order": order}


def is_large(order: str) -> bool:
    return order in ORDERS and ORDERS[order][1] > 100


root_agent = LlmAgent(
    name="desk",
    model=os.environ.get("DESK_MODEL", "local/smollm2-135m"),
    instruction="You answer questions about orders, and refund them when the customer asks.",
    tools=[find_order, FunctionTool(refund, require_confirmation=is_large)],
)
