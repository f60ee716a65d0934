import asyncio
from collections.abc import AsyncIterator

from greenroom import InMemoryRunner, LiveRequestQueue, LlmAgent, types
from greenroom.testing import Hears, Says, ScriptedLiveModel


async def watch_price(stock: str) -> AsyncIterator[dict[str, int]]:
    """Watches the price of a stock."""
    for price in (100, 101):
        yield {stock: price}


script = [types.FunctionCall(name="watch_price", args={"stock": "ACME"}), "I am watching."]
model = ScriptedLiveModel(
    [*script, Says("It is 100"), Says("It is 101"), "The market has closed.", [Hears("bye"), "Bye."]]
)
agent = LlmAgent(name="broker", model=model, tools=[watch_price])


async def main() -> None:
    runner = InMemoryRunner(agent, app_name="broker")
    session = await runner.session_service.create_session(app_name="broker", user_id="ada")
    queue = LiveRequestQueue()
    queue.send_content(types.UserContent("Watch ACME."))
    run = runner.run_live(user_id="ada", session_id=session.id, live_request_queue=queue)
    async for event in run:
        spoken = event.output_transcription
        if spoken is not None and not event.partial:
            print(spoken.text)
        if event.content is not None and event.content.text() == "The market has closed.":
            queue.send_activity_end()
        if event.input_transcription is not None and not event.partial:
            queue.close()


asyncio.run(main())
