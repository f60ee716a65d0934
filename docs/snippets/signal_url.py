from greenroom import Agent, ToolContext, wait_for


def ask_manager(invoice: str, tool_context: ToolContext) -> dict[str, str]:
    """Asks the manager by mail whether an invoice may be paid."""
    yes = tool_context.signal_url("decision", value="approved", expires_seconds=3 * 86400)
    no = tool_context.signal_url("decision", value="rejected", expires_seconds=3 * 86400)
    send_mail("manager@example.com", f"Pay {invoice}? {yes} or {no}")
    return {"status": "asked; wait for the signal `decision`"}


def send_mail(to: str, text: str) -> None:
    print(f"To {to}: {text}")


agent = Agent(
    name="payer",
    model="local/smollm2-135m",
    instruction="Ask the manager, wait three days for the signal `decision`, and pay only if it was approved.",
    tools=[ask_manager, wait_for],
)
