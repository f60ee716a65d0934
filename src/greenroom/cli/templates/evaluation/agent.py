"""An agent with test cases. It needs no model, so that the cases pass at once; put an LlmAgent in its place."""

import re

from greenroom import Event, Workflow

PRICES = {"lamp": 30, "chair": 80, "desk": 240}


def answer(node_input: str) -> Event:
    """Tells the price of an order like "2 chairs"."""
    found = re.search(r"(\d+)\s+(\w+?)s?\b", node_input.lower())
    if found is None or found[2] not in PRICES:
        return Event(message=f"I sell {', '.join(PRICES)}.")
    return Event(message=f"{found[1]} {found[2]}: {int(found[1]) * PRICES[found[2]]} EUR")


root_agent = Workflow(name="my_agent", edges=[("START", answer)])
