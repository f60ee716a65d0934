"""Sleeps until the time in the user's message, in ISO 8601, and says that it is awake."""

from collections.abc import AsyncGenerator

from greenroom import BaseAgent, Event, InvocationContext, types


class Sleeper(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        message = ctx.session.events[0].content
        await ctx.sleep(until=message.text() if message is not None else None)
        yield ctx.new_event(content=types.Content(role="model", parts=[types.Part(text="awake")]))


root_agent = Sleeper(name="sleeper")
