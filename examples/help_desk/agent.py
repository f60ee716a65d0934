"""A help desk: the front desk hands customers over to billing or to technical support. Billing refunds small amounts
by itself; a large refund waits until a person approves it, for weeks if need be, and through restarts of the server.

Try: "I am C-100. I paid twice in May, please refund it." The approval is a card in the dev UI, and in its inbox.
The tools read a small made-up company.
"""

from __future__ import annotations

import os

from greenroom import FunctionTool, LlmAgent, ToolContext

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

LIMIT = 50
"""A refund of more euros needs a person's approval."""

CUSTOMERS = {"C-100": "Ada", "C-200": "Grace"}
INVOICES = {
    "C-100": [
        {"invoice": "R-1", "month": "April", "amount": 60.0},
        {"invoice": "R-2", "month": "May", "amount": 120.0},
    ],
    "C-200": [{"invoice": "R-3", "month": "May", "amount": 39.0}],
}
LINES = {"C-100": "up", "C-200": "down"}


def identify_customer(customer_id: str, tool_context: ToolContext) -> dict[str, str]:
    """Finds out who is asking, and remembers it for the other agents.

    Args:
        customer_id: Customer number, like C-100.
    """
    name = CUSTOMERS.get(customer_id.upper())
    if name is None:
        return {"error": f"There is no customer {customer_id}."}
    tool_context.state["customer_id"] = customer_id.upper()
    tool_context.state["customer_name"] = name
    return {"customer_id": customer_id.upper(), "name": name}


def list_invoices(customer_id: str) -> dict[str, object]:
    """Lists the invoices of a customer, oldest first.

    Args:
        customer_id: Customer number, like C-100.
    """
    return {"invoices": INVOICES.get(customer_id.upper(), [])}


def is_large(amount: float) -> bool:
    return amount > LIMIT


def refund(invoice: str, amount: float, tool_context: ToolContext) -> dict[str, object]:
    """Pays money back for an invoice, at most what it was about.

    Args:
        invoice: Number of the invoice, like R-2.
        amount: How much to pay back, in euros.
    """
    for invoices in INVOICES.values():
        for found in invoices:
            if found["invoice"] == invoice.upper():
                if not 0 < amount <= float(found["amount"]):
                    return {"error": f"The amount must be between 0 and {found['amount']}."}
                # A bank that receives this key twice pays once.
                reference = tool_context.idempotency_key
                return {"status": "refunded", "invoice": invoice.upper(), "amount": amount, "reference": reference}
    return {"error": f"There is no invoice {invoice}."}


def check_line(customer_id: str) -> dict[str, str]:
    """Tests the internet line of a customer.

    Args:
        customer_id: Customer number, like C-100.
    """
    state = LINES.get(customer_id.upper(), "unknown")
    advice = {"up": "The line works: restart the router.", "down": "The line is down: book a technician."}
    return {"line": state, "advice": advice.get(state, "There is no such line.")}


def book_technician(customer_id: str, day: str) -> dict[str, str]:
    """Books a technician's visit.

    Args:
        customer_id: Customer number, like C-100.
        day: Day of the visit.
    """
    return {"status": "booked", "customer_id": customer_id.upper(), "day": day}


billing = LlmAgent(
    name="billing",
    model=MODEL,
    description="Explains invoices and refunds what was charged by mistake.",
    instruction="You answer questions about invoices. The customer is {customer_id?}. Look at the invoices before you "
    "answer, and refund only what was charged twice. A person may have to approve it, who is asked without your "
    "doing; if they refuse, say so and don't try again.",
    tools=[list_invoices, FunctionTool(refund, require_confirmation=is_large)],
)

technical_support = LlmAgent(
    name="technical_support",
    model=MODEL,
    description="Helps when the internet is slow or down.",
    instruction="You solve problems with internet lines. The customer is {customer_id?}. Check the line first, and "
    "book a technician only if it is down.",
    tools=[check_line, book_technician],
)

root_agent = LlmAgent(
    name="front_desk",
    model=MODEL,
    description="Greets customers, finds out what they need, and hands them over.",
    instruction="You are the front desk of an internet provider. Ask for the customer number if you don't know it "
    "({customer_id?}), then hand over to whoever can help.",
    tools=[identify_customer],
    sub_agents=[billing, technical_support],
)
