"""Makes a database with google-adk, and prints what is in it: `python make_database.py URI VERSION FOLDER`.

Runs in an environment that has google-adk, SQLAlchemy and a driver. VERSION: of the schema, 0 or 1. FOLDER: for the
artifacts. What is printed are the sessions as ADK reads them back, and the artifacts, as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.artifacts import FileArtifactService  # noqa: E402
from google.adk.events import Event, EventActions  # noqa: E402
from google.adk.models import BaseLlm, LlmResponse  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions import DatabaseSessionService  # noqa: E402
from google.adk.sessions.schemas import v0  # noqa: E402
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext  # noqa: E402
from google.genai import types  # noqa: E402
from sqlalchemy.ext.asyncio import create_async_engine  # noqa: E402

_THOUGHT = types.Part(text="One moment.", thought=True)
USERS = ("ada", "grace")


class Scripted(BaseLlm):
    """Calls the tool named by the user's message, then answers."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is None and last.text in ("book", "pay", "ask"):
            call = types.FunctionCall(name=last.text, args={"note": "Grüße, 東京 🚢"})
            yield LlmResponse(
                content=types.Content(role="model", parts=[_THOUGHT, types.Part(function_call=call)]),
                usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=7, total_token_count=12),
            )
            return
        citations = types.CitationMetadata(citations=[types.Citation(uri="https://example.com/", start_index=1)])
        parts = [
            types.Part(text="Done.\u2028"),
            types.Part.from_bytes(data=bytes(range(240, 256)), mime_type="image/png"),
        ]
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            finish_reason="STOP",
            citation_metadata=citations,
            custom_metadata={"snake_case": {"inner_name": 1}},
        )


async def book(note: str, tool_context: ToolContext) -> dict[str, Any]:
    """Books."""
    state = tool_context.state
    state["trips_made"] = state.get("trips_made", 0) + 1
    state["user:last_note"] = note
    state["app:bookings"] = state.get("app:bookings", 0) + 1
    state["temp:scratch"] = "not stored"
    await tool_context.save_artifact("ticket.txt", types.Part.from_bytes(data=note.encode(), mime_type="text/plain"))
    await tool_context.save_artifact("user:profile.bin", types.Part.from_bytes(data=b"\0\1", mime_type="image/png"))
    return {"booked": True, "nested_value": [1.5, None, {"a_b": "c"}]}


def pay(note: str) -> dict[str, Any]:
    """Pays, after a confirmation."""
    return {"paid": note}


def ask(note: str) -> None:
    """Asks a person, who answers later."""


async def fill(service: Any, artifacts: Any) -> None:
    agent = LlmAgent(
        name="travel",
        model=Scripted(model="scripted"),
        tools=[book, FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(ask)],
        output_key="last_answer",
    )
    runner = Runner(app_name="travel", agent=agent, session_service=service, artifact_service=artifacts)
    for user in USERS:
        for number in range(2):
            state = {"language": "de", "user:name": user, "app:motto": "safe trips"}
            name = f"{user}-{number}"
            session = await service.create_session(app_name="travel", user_id=user, session_id=name, state=state)
            for text in ("hello", "book", "book", "pay", "ask")[: 5 - 3 * number]:
                message = types.Content(role="user", parts=[types.Part(text=text)])
                async for _ in runner.run_async(user_id=user, session_id=session.id, new_message=message):
                    pass
    session = await service.get_session(app_name="travel", user_id="ada", session_id="ada-0")
    actions = EventActions(state_delta={"trips_made": None}, transfer_to_agent="other", escalate=True)
    await service.append_event(session, Event(author="travel", invocation_id="i-1", actions=actions))
    await service.create_session(app_name="other", user_id="ada", session_id="empty", state={"alone": True})


async def content(service: Any, artifacts: Any) -> dict[str, Any]:
    sessions: list[Any] = []
    files: list[Any] = []
    for app in ("travel", "other"):
        for listed in (await service.list_sessions(app_name=app)).sessions:
            where = {"app_name": app, "user_id": listed.user_id, "session_id": listed.id}
            session = await service.get_session(**where)
            sessions.append(json.loads(session.model_dump_json(by_alias=True, exclude_none=True)))
            for name in await artifacts.list_artifact_keys(**where):
                for version in await artifacts.list_versions(**where, filename=name):
                    part = await artifacts.load_artifact(**where, filename=name, version=version)
                    data = base64.b64encode(part.inline_data.data).decode()
                    files.append([*where.values(), name, version, data, part.inline_data.mime_type])
    return {"sessions": sessions, "artifacts": files}


async def main(uri: str, version: str, folder: str) -> None:
    if version == "0":
        engine = create_async_engine(uri)
        async with engine.begin() as connection:
            await connection.run_sync(v0.Base.metadata.create_all)
        await engine.dispose()
    service, artifacts = DatabaseSessionService(uri), FileArtifactService(folder)
    await fill(service, artifacts)
    print(json.dumps(await content(service, artifacts), indent=1, sort_keys=True))
    await service.close()


asyncio.run(main(*sys.argv[1:]))
