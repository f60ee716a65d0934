"""google-adk's RemoteA2aAgent, run with its environment: `python client.py (legacy|new) CARD_URL TEXT…` sends the
texts in one session, and prints the events of each turn as a line of JSON."""

import asyncio
import json
import sys

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main(version: str, card_url: str, *texts: str) -> None:
    runner = InMemoryRunner(RemoteA2aAgent("remote", card_url, use_legacy=version == "legacy"), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ann")
    for text in texts:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        run = runner.run_async(user_id="ann", session_id=session.id, new_message=message)
        events = [event.model_dump(mode="json", by_alias=True, exclude_none=True) async for event in run]
        print(json.dumps(events))


asyncio.run(main(*sys.argv[1:]))
