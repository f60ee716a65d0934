"""A clerk who pays bills: small amounts at once, amounts above 100 only when a person has said yes.

The run waits for the answer, through restarts too; docs/approvals.md shows the requests and the answers.
`GREENROOM_MODEL` names another model.
"""

from __future__ import annotations

import os

from greenroom import FunctionTool, LlmAgent, ToolContext

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
LIMIT = 100

BILLS = {"B-1": {"to": "Paper & Co", "amount": 40}, "B-2": {"to": "Roof Repairs", "amount": 4200}}


def list_bills() -> dict[str, object]:
    """Lists the bills that are to be paid."""
    return {"bills": BILLS}


def is_large(amount: float) -> bool:
    return amount > LIMIT


def pay(to: str, amount: float, tool_context: ToolContext) -> dict[str, object]:
    """Pays money to somebody.

    Args:
        to: Who gets the money.
        amount: How much, in euros.
    """
    # A bank that receives this key twice pays once.
    return {"status": "paid", "to": to, "amount": amount, "reference": tool_context.idempotency_key[:8]}


def close_account(account: str, tool_context: ToolContext) -> dict[str, object]:
    """Closes an account, and moves what is left in it to another one that a person chooses.

    Args:
        account: Number of the account, like A-1.
    """
    answer = tool_context.tool_confirmation
    if answer is None:
        tool_context.request_confirmation(
            hint=f"Close account {account}? Say where the rest of the money goes.", payload={"move_to": ""}
        )
        return {"status": "waiting for a person"}
    return {"status": "closed", "account": account, "moved_to": answer.payload["move_to"]}


root_agent = LlmAgent(
    name="clerk",
    model=MODEL,
    description="Pays bills and closes accounts.",
    instruction="You pay bills and close accounts when you are told to. Some of it needs the approval of a person, who "
    "is asked without your doing. When a person refuses, say so and don't try again.",
    tools=[list_bills, FunctionTool(pay, require_confirmation=is_large), close_account],
)
