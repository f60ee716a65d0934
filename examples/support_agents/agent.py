"""Two agents of the OpenAI Agents SDK: one receives customers and hands over to the one for bills, whose refunds a
person approves.

The module has an `agent`, as the SDK's own projects do; greenroom hosts it, with the agents that it hands over to. The
approval may come after a restart. `GREENROOM_MODEL` names another model; the small local one seldom calls a tool.
"""

import os

from agents import Agent, function_tool

from greenroom import OpenAIAgentsModel

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

INVOICES = {"R-1": 20.0, "R-2": 60.0}

model = OpenAIAgentsModel(MODEL)


@function_tool
def find_invoice(number: str) -> str:
    """Finds an invoice by its number, as in R-1."""
    if number not in INVOICES:
        return f"There is no invoice {number}; the numbers are {', '.join(INVOICES)}"
    return f"{number}: {INVOICES[number]:.2f} EUR, paid"


@function_tool(needs_approval=True)
def refund(number: str) -> str:
    """Pays the sum of an invoice back."""
    return f"{INVOICES[number]:.2f} EUR were paid back"


billing = Agent(
    name="Billing",
    model=model,
    instructions="You answer questions about invoices, and refund those that were paid by mistake.",
    tools=[find_invoice, refund],
)

agent = Agent(
    name="Reception",
    model=model,
    instructions="You greet customers. Hand over to Billing whoever asks about an invoice.",
    handoffs=[billing],
)
