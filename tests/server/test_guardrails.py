"""Guardrails at a server: a secret reaches neither the client, nor the store, the trace or the model."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.plugins.guardrails.allow_lists import AllowedHosts
from greenroom.plugins.guardrails.patterns import PatternCheck
from greenroom.plugins.guardrails.plugin import GuardrailPlugin
from greenroom.records.content import Transcription
from greenroom.records.human_requests import REQUEST_CONFIRMATION
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing import ScriptedLiveModel
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.seed import SEED
from tests.server.conftest import Serve, Store
from tests.server.live_client import talking
from tests.server.serving import until

ROUNDS = 25
CHECKS = ("card_number", "email", "iban", "token")


@pytest.fixture
def store() -> Store:
    return "sqlite"


def card_number(chance: random.Random) -> str:
    digits = "4" + "".join(chance.choice("0123456789") for _ in range(14))
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[::2]]
    check = -(sum(doubled) + sum(int(digit) for digit in digits[1::2])) % 10
    whole = f"{digits}{check}"
    return chance.choice(["", " ", "-"]).join(whole[at : at + 4] for at in range(0, 16, 4))


def secret(chance: random.Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    word = "".join(chance.choice(letters) for _ in range(chance.randint(20, 40)))
    return chance.choice(
        [card_number(chance), f"{word[:12]}@{word[12:18]}.example.com", f"sk-proj-{word}", f"ghp_{word * 2}"]
    )


def sentence(chance: random.Random, hidden: list[str]) -> str:
    words = [chance.choice(["the", "order 12", "was", "paid,", "on", "2026-11-03;", "at", "10 am"]) for _ in range(20)]
    for one in hidden:
        words.insert(chance.randint(0, len(words)), one)
    return " ".join(words)


def cut_at_random(chance: random.Random) -> Any:
    def cut(text: str) -> list[str]:
        chunks: list[str] = []
        while text:
            size = chance.randint(1, 9)
            chunks.append(text[:size])
            text = text[size:]
        return chunks

    return cut


def rows_of(path: Path) -> str:
    with sqlite3.connect(path) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return repr([database.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables])


async def test_a_secret_reaches_nobody(serve: Serve, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    secrets: list[str] = []

    def hidden() -> str:
        new = [secret(chance) for _ in range(chance.randint(1, 3))]
        secrets.extend(new)
        return sentence(chance, new)

    def look_up(question: str) -> dict[str, Any]:
        """Looks it up."""
        return {"rows": [hidden(), {"note": hidden()}]}

    script: list[Any] = []
    for _ in range(ROUNDS):
        script += [call("look_up", None, question=hidden()), hidden()]
    model = ScriptedModel(script, chunks=cut_at_random(chance))
    checks = [PatternCheck(name) for name in CHECKS]
    plugin = GuardrailPlugin(checks, on_violation="redact")
    agent = LlmAgent(name="desk", model=model, tools=[look_up])
    server = await serve(App(name="desk", root_agent=agent, plugins=[plugin]))
    await server.new_session("desk")

    seen = ""
    streamed = 0
    for _ in range(ROUNDS):
        frames = await server.sse("desk", hidden(), streaming=True)
        seen += repr(frames)
        texts = [
            (frame.data.get("partial"), part["text"])
            for frame in frames
            for part in (frame.data.get("content") or {}).get("parts", ())
            if "text" in part
        ]
        sent = "".join(text for is_partial, text in texts if is_partial)
        streamed += len(sent)
        assert texts[-1][1].startswith(sent)

    trace = await server.client.get("/dev/apps/desk/debug/trace/session/s-1")
    assert trace.status_code == 200
    assert "guardrail" in trace.text
    stored = rows_of(tmp_path / "sessions.db")
    asked = repr(model.requests)
    assert "[redacted: " in stored
    assert streamed > ROUNDS * 50
    assert len(secrets) > ROUNDS * 4
    for where, text in (("client", seen), ("trace", trace.text), ("store", stored), ("model", asked)):
        assert [one for one in secrets if one in text] == [], f"{where}, seed {SEED}"


async def test_a_blocked_message_is_not_stored(serve: Serve, tmp_path: Path) -> None:
    agent = LlmAgent(name="desk", model=ScriptedModel(["ok"]))
    server = await serve(App(name="desk", root_agent=agent, plugins=[GuardrailPlugin([PatternCheck("email")])]))
    await server.new_session("desk")
    frames = await server.sse("desk", "I am ada@example.com", streaming=True)
    [end] = [frame.data for frame in frames if frame.data.get("errorCode")]
    assert end["errorCode"] == "GuardrailBlocked"
    run = await server.wait_for_status(end["invocationId"], "failed")
    assert run["error"]["code"] == "GuardrailBlocked"
    await until(lambda: "ada@example.com" not in rows_of(tmp_path / "sessions.db"))


async def test_an_approval_is_answered_after_a_restart(serve: Serve) -> None:
    fetched: list[str] = []

    def fetch(url: str) -> str:
        """Fetches."""
        fetched.append(url)
        return "page"

    def app(*script: Any) -> App:
        agent = LlmAgent(name="desk", model=ScriptedModel(script), tools=[fetch])
        plugin = GuardrailPlugin([AllowedHosts(["example.com"], on_violation="ask")])
        return App(name="desk", root_agent=agent, plugins=[plugin])

    first = await serve(app(call("fetch", "c-1", url="https://other.com/x")))
    await first.new_session("desk")
    events = (await first.run("desk")).json()
    [request] = [
        part["functionCall"]
        for event in events
        for part in event.get("content", {}).get("parts", ())
        if part.get("functionCall", {}).get("name") == REQUEST_CONFIRMATION
    ]
    assert fetched == []
    first.stop()

    second = await serve(app("done"))
    response = {"id": request["id"], "name": REQUEST_CONFIRMATION, "response": {"confirmed": True}}
    message = {"role": "user", "parts": [{"functionResponse": response}]}
    events = (await second.run("desk", None, newMessage=message)).json()
    assert fetched == ["https://other.com/x"]
    assert events[-1]["content"]["parts"][0]["text"] == "done"


async def test_text_of_a_live_conversation_is_redacted(serve: Serve, tmp_path: Path) -> None:
    heard = Transcription(text="My mail is ada@example.com", finished=True)
    model = ScriptedLiveModel([[LlmResponse(input_transcription=heard), "Is it bob@example.com, or not?"]])
    plugin = GuardrailPlugin([PatternCheck("email")], on_violation="redact")
    server = await serve(App(name="desk", root_agent=LlmAgent(name="desk", model=model), plugins=[plugin]))
    await server.new_session("desk")
    async with talking(server.port) as client:
        await client.say("I am eve@example.com")
        await client.turn()
        await client.send({"close": True})
        await client.closed()
    assert "[redacted: email]" in repr(client.frames)
    assert "@example.com" not in repr(client.frames)
    assert "bob@" not in repr(client.frames)
    assert "bob@" not in rows_of(tmp_path / "sessions.db")
    assert "ada@" not in rows_of(tmp_path / "sessions.db")
    assert "eve@" not in rows_of(tmp_path / "sessions.db")
