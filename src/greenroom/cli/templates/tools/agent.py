"""An agent that calls functions. A person must approve large payments."""

import os
from datetime import datetime
from zoneinfo import ZoneInfo

from greenroom import FunctionTool, LlmAgent, ToolContext


def get_time(time_zone: str) -> dict[str, str]:
    """Returns the time now.

    Args:
        time_zone: An IANA name, like Europe/Oslo.
    """
    try:
        return {"time": datetime.now(ZoneInfo(time_zone)).isoformat(timespec="minutes")}
    except (KeyError, ValueError):
        return {"error": f"There is no time zone {time_zone}."}


def pay(to: str, amount: float, tool_context: ToolContext) -> dict[str, object]:
    """Pays an amount in EUR to somebody."""
    tool_context.state["paid"] = tool_context.state.get("paid", 0) + amount
    return {"status": "paid", "to": to, "amount": amount}


def is_large(amount: float) -> bool:
    return amount > 100


root_agent = LlmAgent(
    name="my_agent",
    model=os.environ.get("GREENROOM_MODEL", "local/smollm2-135m"),
    description="Tells the time and makes payments.",
    instruction="Use get_time for questions about the time, and pay when the user asks for a payment.",
    tools=[get_time, FunctionTool(pay, require_confirmation=is_large)],
)
