"""A team: the coordinator hands a conversation over to the agent that knows the subject."""

import os

from greenroom import LlmAgent

MODEL = os.environ.get("GREENROOM_MODEL", "local/smollm2-135m")

ORDERS = {"A-1": "shipped on Monday", "A-2": "waiting for the supplier"}


def find_order(order: str) -> dict[str, str]:
    """Finds out where an order is.

    Args:
        order: The number, like A-1.
    """
    return {"order": order, "status": ORDERS.get(order.upper(), "unknown")}


orders = LlmAgent(
    name="orders",
    model=MODEL,
    description="Answers questions about orders.",
    instruction="Answer questions about orders. Look each one up with find_order.",
    tools=[find_order],
)

advice = LlmAgent(
    name="advice",
    model=MODEL,
    description="Helps to choose a product.",
    instruction="Ask what the user needs the product for, then recommend one of: lamp, chair, desk.",
)

root_agent = LlmAgent(
    name="my_agent",
    model=MODEL,
    description="Welcomes customers.",
    instruction="Hand questions about orders over to `orders`, and questions about products to `advice`.",
    sub_agents=[orders, advice],
)
