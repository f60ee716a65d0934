from google.adk.agents import BaseAgent, LlmAgent, LoopAgent
from google.adk.events import Event, EventActions


class Check(BaseAgent):
    async def _run_async_impl(self, ctx):
        good = ctx.session.state.get("text") == "v2"
        yield Event(author=self.name, invocation_id=ctx.invocation_id, actions=EventActions(escalate=good))


root_agent = LoopAgent(
    name="refine",
    max_iterations=5,
    sub_agents=[LlmAgent(name="writer", model="scripted", output_key="text"), Check(name="check")],
)
REPLIES = ["v1", "v2", "v3"]
MESSAGES = ["go"]
