import asyncio

from greenroom import InMemoryRunner, LlmAgent, types

root_agent = LlmAgent(name="weather", model="local/smollm2-135m", instruction="Answer questions about the weather.")


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="ada")
    message = types.Content(role="user", parts=[types.Part.from_text(text="How is the weather in Oslo?")])
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
        if event.is_final_response() and event.content is not None:
            print(event.content.text())


asyncio.run(main())
