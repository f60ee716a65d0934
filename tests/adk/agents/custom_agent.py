from collections.abc import AsyncGenerator

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event


class Story(BaseAgent):
    writer: LlmAgent
    critic: LlmAgent
    rounds: int = 2
    model_config = {"arbitrary_types_allowed": True}

    def __init__(self, name: str, writer: LlmAgent, critic: LlmAgent):
        super().__init__(name=name, writer=writer, critic=critic, sub_agents=[writer, critic])

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for _ in range(self.rounds):
            async for event in self.writer.run_async(ctx):
                yield event
            if "good" in ctx.session.state["text"]:
                break
        async for event in self.critic.run_async(ctx):
            yield event


root_agent = Story(
    "story", LlmAgent(name="writer", model="scripted", output_key="text"), LlmAgent(name="critic", model="scripted")
)
REPLIES = ["bad text", "good text", "Fine."]
MESSAGES = ["write"]
