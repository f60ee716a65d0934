from collections.abc import Sequence

from greenroom import App, Finding, GuardrailCheck, GuardrailDecision, GuardrailPlugin, InvocationContext, LlmAgent
from greenroom.plugins.guardrails.check import Where


class NoInstructions(GuardrailCheck):
    """Finds the most common way to give a model instructions in a tool's result."""

    async def find(self, text: str, *, where: Where, ctx: InvocationContext, start: int = 0) -> Sequence[Finding]:
        phrase = "ignore previous instructions"
        at = text.lower().find(phrase, start)
        return [] if at == -1 else [Finding(at, at + len(phrase), "instructions")]


decisions: list[str] = []


def record(decision: GuardrailDecision, ctx: InvocationContext) -> None:
    decisions.append(f"{ctx.user_id}: {decision.action} by {decision.check} in {decision.where}")


app = App(
    name="reader",
    root_agent=LlmAgent(name="reader", model="gemini-2.5-flash"),
    plugins=[
        GuardrailPlugin(
            [NoInstructions("no_instructions", where=["user_message", "tool_results"])],
            reply="I can't do that.",
            on_decision=record,
        )
    ],
)
