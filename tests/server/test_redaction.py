"""Redaction at a server: what the app's rules find is at no time in the database, whichever way it comes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.artifacts.files import FileArtifactService
from greenroom.invocation.user_context import ToolContext
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.content import Content, Part
from greenroom.records.listings import MemoryEntry
from greenroom.redaction.findings import Finding
from greenroom.redaction.rules import Redaction
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.sleep import wait_for
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import call
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving

MAIL = "ada@example.com"
PHONE = "+49 30 901820"
NAME = "Zaphod"
SSN = "987-65-4321"
SECRETS = (MAIL, PHONE, NAME, SSN)


@pytest.fixture
def store() -> Store:
    return "sqlite"


class Watch:
    """The secrets that were in the files of a folder at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.looks = 0
        self.found: set[tuple[str, str]] = set()

    def look(self) -> None:
        for path in self._folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                data = path.read_bytes() if path.is_file() else b""
                self.found |= {(path.name, secret) for secret in SECRETS if secret.encode() in data}
        self.looks += 1


@contextlib.contextmanager
def watched(folder: Path) -> Generator[Watch]:
    """Looks into all files again and again, in a thread."""
    watch = Watch(folder)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            watch.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
        watch.look()


def names_in(text: str) -> list[Finding]:
    at = text.find(NAME)
    return [] if at == -1 else [Finding(at, at + len(NAME), "name")]


RULES = Redaction(fields=["ssn"], patterns=["email", "phone"], finders=[names_in])

received: list[Any] = []


async def look_up(who: str, tool_context: ToolContext) -> dict[str, Any]:
    """Looks a person up."""
    received.append(who)
    tool_context.state["user:last"] = MAIL
    tool_context.state["ssn"] = SSN
    await tool_context.save_artifact("notes.txt", Part(text=f"Call {PHONE}"))
    await tool_context.add_memory(memories=[MemoryEntry(content=Content(parts=[Part(text=f"{NAME} likes tea")]))])
    return {"mail": MAIL, "ssn": SSN, "text": f"{NAME}: {PHONE}"}


async def forget(who: str) -> dict[str, Any]:
    """Forgets a person."""
    raise ValueError(f"{MAIL} and {NAME} can't be forgotten")


def app_of(rules: Redaction | None) -> tuple[App, ScriptedModel]:
    script: list[Any] = [
        call("look_up", "c-1", who=f"{NAME} of {MAIL}"),
        f"I have written to {MAIL}, and called {PHONE}.",
        call("forget", "c-2", who=NAME),
        call("pay", "c-3", to=MAIL),
        f"Paid {MAIL}.",
        call("wait_for", "c-4", signal="go", timeout_seconds=600),
        f"{NAME} has come.",
    ]
    model = ScriptedModel(script)

    def pay(to: str) -> str:
        """Pays."""
        received.append(to)
        return f"{to} of {NAME}"

    tools = [look_up, forget, FunctionTool(pay, require_confirmation=True), wait_for]
    return App(name="desk", root_agent=LlmAgent(name="desk", model=model, tools=tools), redaction=rules), model


async def say_everything(server: Serving) -> None:
    """Brings the secrets on all ways on which clients, models and tools bring content."""
    client = server.client
    user = "/apps/desk/users/ada"
    session = f"{user}/sessions/s-1"
    created = await client.post(session, json={"state": {"mail": MAIL, "ssn": SSN, "user:name": NAME}})
    assert created.status_code == 200, created.text
    imported = {"sessionId": "s-2", "events": [{"author": "user", "content": {"parts": [{"text": NAME}]}}]}
    assert (await client.post(f"{user}/sessions", json=imported)).status_code == 200
    title = {"title": f"About {NAME}", "stateDelta": {"phone": PHONE}}
    assert (await client.patch(session, json=title)).status_code == 200

    async def say(text: str, **body: Any) -> dict[str, Any]:
        message = {"newMessage": {"role": "user", "parts": [{"text": text}]}, "streaming": True, **body}
        started = await client.post(f"{session}/runs", json=message)
        assert started.status_code == 202, started.text
        run = started.json()["id"]
        async with asyncio.timeout(20):
            while (ended := (await client.get(f"/runs/{run}")).json())["status"] in ("queued", "running"):
                await asyncio.sleep(0.01)
        return ended

    blob = {"inlineData": {"mimeType": "text/plain", "data": "YWRhQGV4YW1wbGUuY29t"}}
    parts = [{"text": f"I am {NAME}, {MAIL}"}, blob]
    first = await say(
        "", newMessage={"role": "user", "parts": parts}, stateDelta={"ssn": SSN}, customMetadata={"m": MAIL}
    )
    assert first["status"] == "succeeded"
    assert (await say("Forget me"))["status"] == "failed"

    asked = await say(f"Pay {NAME}")
    assert asked["status"] == "waiting"
    [request] = (await client.get("/requests", params={"app_name": "desk"})).json()["requests"]
    answer = {"confirmed": True, "comment": f"{NAME} may"}
    assert (await client.post(f"/requests/{request['id']}/answer", json=answer)).status_code == 200
    await server.wait_for_status(asked["id"], "succeeded")

    waiting = await say("Wait")
    assert waiting["status"] == "waiting"
    assert (await client.post(f"/runs/{waiting['id']}/signals/later", json={"by": NAME})).status_code == 200
    assert (await client.post(f"/runs/{waiting['id']}/signals/go", json={"by": MAIL})).status_code == 200
    await server.wait_for_status(waiting["id"], "succeeded")

    message = {"newMessage": {"role": "user", "parts": [{"text": f"Write to {MAIL}"}]}}
    schedule = {"userId": "ada", "everySeconds": 86400, "request": message}
    assert (await client.post("/apps/desk/schedules", json=schedule)).status_code == 201
    late = {**message, "delaySeconds": 3600}
    assert (await client.post(f"{session}/runs", json=late)).status_code == 202
    [*_, event] = (await client.get(session)).json()["events"]
    said = {"name": "thumb", "score": 1, "comment": f"{NAME} was kind"}
    feedback = await client.post(f"{session}/events/{event['id']}/feedback", json=said)
    assert feedback.status_code in (200, 201), feedback.text
    assert (await client.patch(f"{user}/memory", json={"sessionId": "s-1"})).status_code == 200
    trace = await client.get("/dev/apps/desk/debug/trace/session/s-1")  # written by now
    assert trace.status_code == 200


async def _served(serve: Serve, folder: Path, rules: Redaction | None) -> tuple[Serving, ScriptedModel]:
    app, model = app_of(rules)
    services = {
        "artifact_service": FileArtifactService(folder / "artifacts"),
        "memory_service": SqliteMemoryService(folder / "memory.db"),
    }
    return await serve(app, services=services), model


async def test_secrets_are_at_no_time_in_the_database(serve: Serve, tmp_path: Path) -> None:
    received.clear()
    server, model = await _served(serve, tmp_path, RULES)
    with watched(tmp_path) as watch:
        await say_everything(server)
    assert watch.looks > 5
    assert watch.found == set()

    assert received == ["[redacted: name] of [redacted: email]", "[redacted: email]"]
    asked = repr(model.requests)
    assert [secret for secret in SECRETS if secret in asked] == []


async def test_without_rules_they_are_all_found(serve: Serve, tmp_path: Path) -> None:
    received.clear()
    server, _ = await _served(serve, tmp_path, None)
    with watched(tmp_path) as watch:
        await say_everything(server)
    in_databases = {secret for name, secret in watch.found if not name.startswith("memory")}
    assert in_databases == set(SECRETS)
    assert {name.partition(".")[0] for name, _ in watch.found} >= {"sessions", "memory"}
    assert received == [f"{NAME} of {MAIL}", MAIL]


async def test_a_client_sees_streamed_text_as_the_model_says_it(serve: Serve) -> None:
    model = ScriptedModel([f"Write to {MAIL}, please"])
    server = await serve(App(name="desk", root_agent=LlmAgent(name="desk", model=model), redaction=RULES))
    await server.new_session("desk")
    frames = await server.sse("desk", "Hello", streaming=True)
    texts = [(frame.data.get("partial"), frame.data["content"]["parts"][0]["text"]) for frame in frames]
    assert MAIL in "".join(text for is_partial, text in texts if is_partial)
    assert texts[-1] == (None, "Write to [redacted: email], please")
