"""The examples of the gallery, served as a user would serve them, with a scripted model in place of a real one.

`docs/gallery.md` shows transcripts of the conversations here. `make gallery` writes them again, and takes the pictures.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import textwrap
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any

from greenroom import LLMRegistry
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.artifacts.files import FileArtifactService
from greenroom.models.model import BaseLlm
from greenroom.records.human_requests import REQUEST_CONFIRMATION
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from tests.dev_ui.sessions import part_of
from tests.server.serving import Json, Serving, serving, until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "gallery.md"
MODELS = r"(local|gemini|gpt|openai)[-/].+"
MAX_LINE = 104


@contextlib.contextmanager
def in_place_of_models(model: BaseLlm) -> Generator[None]:
    """Answers by this model whatever model an agent names."""
    factories, models = LLMRegistry._factories, LLMRegistry._models
    LLMRegistry._factories, LLMRegistry._models = dict(factories), {}
    LLMRegistry.register(MODELS, lambda _: model)
    try:
        yield
    finally:
        LLMRegistry._factories, LLMRegistry._models = factories, models


@contextlib.asynccontextmanager
async def served(app: str | Path, model: BaseLlm, folder: Path) -> AsyncGenerator[Serving]:
    """Serves an example, with its stores in a folder. app: the example's name, or another folder."""
    loader = DirectoryAppLoader(EXAMPLES / app)
    with in_place_of_models(model):
        application = create_app(
            app_loader=loader,
            session_service=SqliteSessionService(folder / "sessions.db"),
            artifact_service=FileArtifactService(folder / "artifacts"),
            settings=ServerSettings(),
        )
        async with serving(application) as server:
            yield server


async def converse(server: Serving, app: str, *messages: Any, session: str = "s-1") -> list[Json]:
    """Sends messages and answers to requests one after the other. Returns the session's events.

    messages: texts, parts, lists of parts, or answers as `tests.dev_ui.sessions` has them.
    """
    path = f"/apps/{app}/users/user/sessions/{session}"
    if (await server.client.get(path)).status_code == 404:
        (await server.client.post(path, json={})).raise_for_status()

    for message in messages:
        events = (await server.client.get(f"{path}/events")).json()["events"]
        parts = message if isinstance(message, list) else [part_of(message, events)]
        body = {"newMessage": {"role": "user", "parts": parts}}
        started = await server.client.post(f"{path}/runs", json=body)
        assert started.status_code == 202, started.text
        run = await _ended(server, started.json()["id"])
        assert run["status"] in ("succeeded", "waiting"), run

    return (await server.client.get(path)).json()["events"]


async def _ended(server: Serving, run_id: str) -> Json:
    """The run's record when it has ended or waits; local models take long on a busy machine."""
    run: Json = {}

    async def has_ended() -> bool:
        run.update((await server.client.get(f"/runs/{run_id}")).json())
        return run["status"] not in ("queued", "running")

    await until(has_ended, seconds=120)
    return run


def responses(events: list[Json]) -> list[Json]:
    """The responses of tools, in order."""
    parts: list[Json] = [part for event in events for part in event.get("content", {}).get("parts", [])]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


def transcript(events: list[Json], shown: Mapping[str, str] | None = None) -> str:
    """Lines for the texts, calls and responses of a session. Long texts are wrapped, long calls and responses cut.

    shown: what to write in place of texts that differ from test to test, such as paths.
    """
    text = json.dumps(events)
    for real, short in (shown or {}).items():
        text = text.replace(real, short)
    return "\n".join(line for event in json.loads(text) for line in _lines(event))


def _lines(event: Json) -> Generator[str]:
    author = event["author"]
    for speech in ("inputTranscription", "outputTranscription"):
        if event.get(speech):
            yield from _wrapped(f"{author} (speaking): {event[speech]['text']}")

    for part in event.get("content", {}).get("parts", []):
        call = part.get("functionCall", {})
        response = part.get("functionResponse", {})
        if "text" in part:
            yield from _wrapped(f"{author}: {part['text']}")
        elif call.get("name") == REQUEST_CONFIRMATION:
            yield "  (waits for a person's approval)"
        elif response.get("name") == REQUEST_CONFIRMATION:
            yield f"{author} {'approves' if response['response'].get('confirmed') else 'refuses'}"
        elif call:
            yield _cut(f"{author} calls {call['name']}({_arguments(call)})")
        elif response and "has not run yet" not in str(response["response"]):
            yield _cut(f"  {response['name']} -> {_plain(response['response'])}")


def _wrapped(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in textwrap.wrap(line, MAX_LINE, subsequent_indent="    ")]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"


def _arguments(call: Json) -> str:
    return ", ".join(f"{name}={_plain(value)}" for name, value in (call.get("args") or {}).items())


def _plain(value: object) -> str:
    """Ids that differ from run to run are cut."""
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{20,}|\b[0-9a-f]{32,}\b", "…", repr(value))


def check_transcript(name: str, text: str) -> None:
    """Compares a transcript with the one of the example's section on the page; with GREENROOM_GALLERY=1, writes it."""
    page = PAGE.read_text()
    block = re.search(rf"(<!-- transcript of {name} -->\n\n```text\n)(.*?)(\n```\n)", page, re.DOTALL)
    assert block is not None, f"docs/gallery.md has no transcript of {name}"
    if os.environ.get("GREENROOM_GALLERY") == "1":
        PAGE.write_text(page[: block.start(2)] + text + page[block.end(2) :])
    else:
        assert block[2] == text, "docs/gallery.md shows another conversation; `make gallery` writes it again"
