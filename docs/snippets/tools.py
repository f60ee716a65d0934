from greenroom import FunctionTool, LlmAgent, LongRunningFunctionTool, ToolContext


def look_up(customer: str) -> dict[str, str]:
    """Finds a customer."""
    return {"customer": customer, "city": "Oslo"}


def pay(amount: int, tool_context: ToolContext) -> dict[str, str | int]:
    """Pays an amount."""
    return {"status": "paid", "amount": amount, "key": tool_context.idempotency_key}


def order_report(month: str) -> dict[str, str]:
    """Orders a report, which is sent later."""
    return {"status": "ordered", "month": month}


agent = LlmAgent(
    name="clerk",
    tools=[
        FunctionTool(look_up, on_interrupt="retry"),
        FunctionTool(pay, on_interrupt="report"),
        LongRunningFunctionTool(order_report),
    ],
)
