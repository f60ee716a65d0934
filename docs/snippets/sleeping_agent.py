from collections.abc import AsyncGenerator

from greenroom import BaseAgent, Event, InvocationContext, types


class Collector(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        yield self.say(ctx, "I sent a reminder.")
        try:
            amount = await ctx.wait_for("paid", timeout=7 * 86400)
        except TimeoutError:
            yield self.say(ctx, "It was not paid within a week.")
            await ctx.sleep(until="2027-01-04T09:00:00+01:00")
            amount = await ctx.wait_for("paid")
        yield self.say(ctx, f"Received {amount}.")

    def say(self, ctx: InvocationContext, text: str) -> Event:
        return ctx.new_event(content=types.Content(role="model", parts=[types.Part(text=text)]))


root_agent = Collector(name="collector")
