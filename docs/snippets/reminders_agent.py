import os

from greenroom import Agent, App, ApprovalPolicy, FunctionTool, Schedule, ToolContext, wait

MANAGER = ApprovalPolicy(users=["grace"], excludes_requester=True, deadline_seconds=2 * 86400, default="refuse")


def send_mail(to: str, text: str, tool_context: ToolContext) -> dict[str, str]:
    """Sends a mail to a colleague."""
    print(f"To {to}: {text}")
    return {"status": "sent", "to": to, "key": tool_context.idempotency_key}


root_agent = Agent(
    name="reminders",
    model=os.environ.get("REMINDERS_MODEL", "local/smollm2-135m"),
    instruction="You remind people by mail. Wait until the time that the user names, and send the mail then.",
    tools=[wait, FunctionTool(send_mail, require_confirmation=MANAGER)],
)

app = App(
    name="reminders",
    root_agent=root_agent,
    schedules=[
        Schedule(
            id="reports",
            user_id="ada",
            cron="0 9 * * FRI",
            time_zone="Europe/Berlin",
            message="Remind the team now to send their reports.",
        )
    ],
)
