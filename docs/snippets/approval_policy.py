from greenroom import Agent, App, ApprovalPolicy, FunctionTool


def pay(to: str, amount: float) -> dict[str, str]:
    """Pays an amount."""
    return {"status": "paid", "to": to, "amount": str(amount)}


def who_approves(amount: float) -> bool | ApprovalPolicy:
    """Large amounts need two of three people."""
    if amount < 100:
        return False
    return ApprovalPolicy(users=["bob", "carol", "dave"], required=2) if amount > 10_000 else True


agent = Agent(name="clerk", model="local/smollm2-135m", tools=[FunctionTool(pay, require_confirmation=who_approves)])
app = App(
    name="clerk",
    root_agent=agent,
    approvals=ApprovalPolicy(
        scope="approve:payments", excludes_requester=True, deadline_seconds=24 * 3600, default="refuse"
    ),
)
