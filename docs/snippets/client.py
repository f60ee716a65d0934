import asyncio

from greenroom import AsyncClient, errors


async def ask(url: str, question: str) -> None:
    async with AsyncClient(url) as client:
        session = await client.create_session(app_name="weather", user_id="ada")
        try:
            stream = await client.run(app_name="weather", user_id="ada", session_id=session.id, message=question)
            async for event in stream:
                if event.content is not None:
                    print(event.content.text())
        except errors.RunFailed as error:
            print(f"{error.code}: {error.detail}")
        else:
            print(f"{stream.run.status}, {stream.run.usage}")


if __name__ == "__main__":
    asyncio.run(ask("http://127.0.0.1:8000", "How is the weather in Oslo?"))
