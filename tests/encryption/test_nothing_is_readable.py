"""Searches the bytes of the stores for what users wrote, a word for each feature, and finds nothing.

The control is the same without encryption, where each word is found.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.durability.server_process import ServerProcess, server_in
from tests.encryption.server_app import APP, USER
from tests.postgres.postgres_server import PostgresServer, started_server

Json = dict[str, Any]

_SESSION = f"/apps/{APP}/users/{USER}/sessions/s-1"
_FEATURES = (
    "session_state", "patched_state", "message", "tool_state", "user_state", "app_state", "tool_artifact", "credential",
    "tool_result", "inline_data", "approval", "comment", "signal", "error", "label", "feedback", "schedule", "delayed",
    "hook", "app_hook", "artifact", "json_artifact",
)  # fmt: skip
"""Each is written to the stores as a word of its own."""

_IN_ARTIFACTS = {"tool_artifact", "artifact", "json_artifact"}
_IN_DATABASE = set(_FEATURES) - {"artifact", "json_artifact"}


@pytest.fixture(params=["sqlite", "postgres"])
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """A server of its own, whose files nothing else has written; None for SQLite."""
    if request.param == "sqlite":
        yield None
        return
    server = started_server("fsync=off")
    yield server
    server.remove()


@pytest.mark.slow
@pytest.mark.parametrize("is_encrypted", [True, False], ids=["encrypted", "plain"])
async def test_words_are_found_only_in_plain_stores(
    is_encrypted: bool, postgres: PostgresServer | None, tmp_path: Path, key_file: str
) -> None:
    words = {feature: f"zq{uuid4().hex[:12]}" for feature in _FEATURES}
    data = tmp_path / "data"
    data.mkdir()
    (data / "webhooks.toml").write_text(f'"*" = ["whsec_{base64.b64encode(bytes(range(32))).decode()}"]\n')
    environment = {
        "GREENROOM_KEYS": f"file://{key_file}" if is_encrypted else "",
        "GREENROOM_URI": postgres.uri() if postgres is not None else f"sqlite:///{data}/greenroom.db",
        "GREENROOM_ARTIFACTS": (data / "artifacts").as_uri(),
    }

    async with server_in(data, module="tests.encryption.server_app", **environment) as server:
        await server.start()
        written = await _write_everything(server, words)
        await server.kill()
        in_artifacts = _search(words, _files(data / "artifacts"))
        if postgres is None:
            in_file = _search(words, data.glob("greenroom.db*"))
            assert in_file == (set() if is_encrypted else _IN_DATABASE)
        assert in_artifacts == (set() if is_encrypted else _IN_ARTIFACTS)

        await server.start()
        assert await _read_everything(server) == written
        await server.stop(signal.SIGTERM)
    if postgres is not None:
        in_database = _search_postgres(postgres, words)
    else:
        in_database = _search(words, data.glob("greenroom.db*"))
    assert in_database == (set() if is_encrypted else _IN_DATABASE)


async def _write_everything(server: ServerProcess, words: dict[str, str]) -> Json:
    """Uses each feature, and returns what `_read_everything` reads then."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        await _send(client, "POST", _SESSION, {"state": {"start": words["session_state"]}})
        await _send(client, "PATCH", _SESSION, {"stateDelta": {"patched": {"deep": words["patched_state"]}}})

        names = ("tool_state", "user_state", "app_state", "tool_artifact", "credential", "tool_result")
        kept = json.dumps({"texts": [words[name] for name in names]})
        await _run(client, f"keep {kept}", {"Idempotency-Key": "k-1"})
        await _run(client, f"Hello {words['message']}", webhooks=[_webhook(words["hook"])])
        await _run(client, f"fail {json.dumps({'because': words['error']})}")
        blob = base64.b64encode(words["inline_data"].encode() * 6000).decode()
        await _run(client, "look", parts=[{"inlineData": {"data": blob, "mimeType": "application/x-note"}}])

        await _run(client, f"pay {json.dumps({'to': words['approval']})}")
        [request] = (await _send(client, "GET", "/requests"))["requests"]
        await _send(
            client, "POST", f"/requests/{request['id']}/answer", {"confirmed": True, "comment": words["comment"]}
        )
        run = await _start(client, f"wait_for {json.dumps({'signal': 'go'})}")
        await _until(client, run, "waiting")
        await _send(client, "POST", f"/runs/{run}/signals/go", {"value": words["signal"]})
        await _until(client, run, "succeeded")

        events = (await _send(client, "GET", _SESSION))["events"]
        feedback = {"name": "helpful", "label": words["label"], "comment": words["feedback"]}
        await _send(client, "POST", f"{_SESSION}/events/{events[-1]['id']}/feedback", feedback)
        await _send(client, "POST", f"/apps/{APP}/schedules", {
            "userId": USER, "cron": "0 0 1 1 *", "request": {"newMessage": {"parts": [{"text": words["schedule"]}]}},
        })  # fmt: skip
        await _start(client, words["delayed"], startAt=time.time() + 86_400)
        await _send(client, "PUT", f"/apps/{APP}/webhooks/pager", _webhook(words["app_hook"]))

        await _send(client, "POST", f"{_SESSION}/fork", {"sessionId": "s-2"})
        await _send(client, "PATCH", f"/apps/{APP}/users/{USER}/memory", {"sessionId": "s-1"})
        reply = await client.put(
            f"{_SESSION}/artifacts/notes.txt", content=words["artifact"], headers={"content-type": "text/plain"}
        )
        assert reply.status_code == 200, reply.text
        saved = {"filename": "json.txt", "artifact": {"text": words["json_artifact"]}}
        await _send(client, "POST", f"{_SESSION}/artifacts", saved)
        async with asyncio.timeout(10):
            while not await _send(client, "GET", f"/dev/apps/{APP}/debug/trace/session/s-1"):
                await asyncio.sleep(0.05)
    return await _read_everything(server)


async def _read_everything(server: ServerProcess) -> Json:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        paths = (
            _SESSION,
            f"/apps/{APP}/users/{USER}/sessions/s-2",
            "/requests",
            f"{_SESSION}/feedback",
            f"/apps/{APP}/schedules",
            f"/apps/{APP}/webhooks",
            f"{_SESSION}/artifacts",
            f"{_SESSION}/artifacts/json.txt",
            f"{_SESSION}/artifacts/report",
            f"{_SESSION}/artifacts/report/versions/metadata",
            f"/apps/{APP}/users/{USER}/credentials",
        )
        found = {path: await _send(client, "GET", path) for path in paths}
        runs = (await _send(client, "GET", "/runs"))["runs"]
        found["runs"] = {run["id"]: (run["status"], run.get("error")) for run in runs}
        found["notes"] = (await client.get(f"{_SESSION}/artifacts/notes.txt/versions/0/content")).text
        return found


async def _run(client: httpx.AsyncClient, text: str, headers: dict[str, str] | None = None, **fields: Any) -> None:
    await client.post("/run", json=_request(text, **fields), headers=headers)


async def _start(client: httpx.AsyncClient, text: str, **fields: Any) -> str:
    body = {key: value for key, value in _request(text, **fields).items() if key not in ("appName", "userId")}
    del body["sessionId"]
    return (await _send(client, "POST", f"{_SESSION}/runs", body))["id"]


def _request(text: str, *, parts: list[Json] | None = None, **fields: Any) -> Json:
    message = {"role": "user", "parts": [{"text": text}, *(parts or [])]}
    return {"appName": APP, "userId": USER, "sessionId": "s-1", "newMessage": message, **fields}


def _webhook(word: str) -> Json:
    return {"url": f"http://127.0.0.1:9/{word}", "states": ["succeeded", "failed", "waiting"]}


async def _until(client: httpx.AsyncClient, run: str, status: str) -> None:
    async with asyncio.timeout(20):
        while (await _send(client, "GET", f"/runs/{run}"))["status"] != status:
            await asyncio.sleep(0.02)


async def _send(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    reply = await client.request(method, path, json=body)
    assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
    return reply.json() if reply.content else None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _search(words: dict[str, str], files: Iterator[Path]) -> set[str]:
    """The features whose words are in the files."""
    contents = [path.read_bytes() for path in files]
    assert contents
    return {feature for feature, word in words.items() if any(word.encode() in content for content in contents)}


def _search_postgres(server: PostgresServer, words: dict[str, str]) -> set[str]:
    """Searches a dump, and after a checkpoint all files of the server, its write-ahead log too."""
    command = [server.program("pg_dump"), "-h", server.folder, "-U", "postgres", "postgres"]
    dump = subprocess.run(command, capture_output=True, check=True).stdout
    server.run_sql("CHECKPOINT")
    server.stop()
    in_dump = {
        feature for feature, word in words.items() if word.encode() in dump or word.encode().hex().encode() in dump
    }
    return in_dump | _search(words, _files(server.folder))
