import os

from greenroom import LlmAgent

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


root_agent = LlmAgent(
    name="desk",
    model=os.environ.get("DESK_MODEL", "local/smollm2-135m"),
    instruction="You answer questions about orders.",
    tools=[find_order],
)
