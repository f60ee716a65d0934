from greenroom import Agent, wait, wait_for


def send_reminder(invoice: str) -> str:
    """Sends a reminder of an invoice."""
    return f"sent for {invoice}"


agent = Agent(
    name="collector",
    model="local/smollm2-135m",
    instruction="Send a reminder, wait a week for the signal `paid`, and send the next one if it doesn't come.",
    tools=[send_reminder, wait, wait_for],
)
