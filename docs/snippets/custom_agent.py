from collections.abc import AsyncIterator

from greenroom import BaseAgent, Event, InvocationContext, LlmAgent


class Router(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        chosen = self.find_agent("night" if ctx.session.state.get("late") else "day")
        if chosen is not None:
            async for event in chosen.run_async(ctx):
                yield event


router = Router(name="router", sub_agents=[LlmAgent(name="day"), LlmAgent(name="night")])
