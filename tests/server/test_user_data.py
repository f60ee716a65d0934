"""Export and erasure of all data of a user."""

from __future__ import annotations

import io
import json
import sqlite3
import time
import zipfile
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from greenroom.artifacts.files import FileArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.cli.sessions_transfer import store as store_session
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records import wire
from greenroom.records.auth import AuthCredential, AuthCredentialTypes
from greenroom.records.exported_session import ExportedSession
from greenroom.records.feedback import Feedback
from greenroom.server.server_state import ServerState
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sqlite.compact import compact
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving
from tests.server.test_redaction import SECRETS, app_of, say_everything

OTHER = "bob-b0b"
"""A user whose data must stay. Its name is found in files."""


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return getattr(request, "param", "sqlite")


def _state(server: Serving) -> ServerState:
    return server.app._server  # pyright: ignore[reportPrivateUsage]


async def _served(serve: Serve, folder: Path) -> Serving:
    app, _ = app_of(None)
    artifacts: BaseArtifactService = FileArtifactService(folder / "artifacts")
    services = {"artifact_service": artifacts, "memory_service": SqliteMemoryService(folder / "sessions.db")}
    server = await serve(app, services=services)
    await say_everything(server)

    client = server.client
    for name, text in (("files/report.txt", "A report"), ("user:photo.png", "A photo")):
        path = f"/apps/desk/users/ada/sessions/s-1/artifacts/{name}"
        assert (await client.put(path, content=f"{text} of ada-ada".encode())).status_code in (200, 201)
    await _state(server).credentials.save_credential(
        app_name="desk",
        user_id="ada",
        credential_key="k",
        credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="ada-secret-key"),
    )

    other = f"/apps/desk/users/{OTHER}"
    created = {"sessionId": "o-1", "state": {"user:name": OTHER}, "events": [_event("of bob"), _event("again")]}
    assert (await client.post(f"{other}/sessions", json=created)).status_code == 200
    assert (await client.put(f"{other}/sessions/o-1/artifacts/user:a.txt", content=b"bob's")).status_code in (200, 201)
    assert (await client.patch(f"{other}/memory", json={"sessionId": "o-1"})).status_code == 200
    [event, *_] = (await client.get(f"{other}/sessions/o-1")).json()["events"]
    for feedback_id, subject in (("f-1", "ada"), ("f-2", OTHER)):
        feedback = Feedback(
            id=feedback_id,
            app_name="desk",
            user_id=OTHER,
            session_id="o-1",
            event_id=event["id"],
            run_id=event["invocationId"],
            name=f"thumb-{feedback_id}",
            comment=f"said by {subject}",
            source="service",
            subject=subject,
            created_at=time.time(),
        )
        await _state(server).engine.feedback.store.save(feedback)
    return server


def _event(text: str) -> dict[str, Any]:
    return {"author": "user", "content": {"role": "user", "parts": [{"text": text}]}}


def _lines(export: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export.read(name).splitlines()]


async def _exported(server: Serving, user: str) -> zipfile.ZipFile:
    reply = await server.client.get(f"/apps/desk/users/{user}/export")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/zip"
    export = zipfile.ZipFile(io.BytesIO(reply.content))
    assert export.testzip() is None
    return export


async def _snapshot(server: Serving, user: str) -> dict[str, Any]:
    export = await _exported(server, user)
    files = {name: export.read(name) for name in export.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    return {**files, "counts": manifest["counts"]}


async def test_an_export_has_all_that_is_stored_of_a_user(serve: Serve, tmp_path: Path) -> None:
    server = await _served(serve, tmp_path)
    export = await _exported(server, "ada")
    text = b"\n".join(export.read(name) for name in export.namelist()).decode()
    assert [secret for secret in SECRETS if secret not in text] == []
    for hidden in ("ada-secret-key", "bob"):
        assert hidden not in text.replace(OTHER, "") if hidden == "bob" else hidden not in text

    manifest = json.loads(export.read("manifest.json"))
    assert export.namelist()[-1] == "manifest.json"
    assert manifest["missing"] == {}
    counts = manifest["counts"]
    assert [kind for kind, count in counts.items() if not count and kind not in ("answers", "usage")] == []
    for kind, count in counts.items():
        if kind not in ("events", "state"):
            assert len(_lines(export, f"{kind}.jsonl")) == count, kind

    log = (await server.client.get("/apps/desk/users/ada/sessions/s-1")).json()
    sessions = {session["id"]: session for session in _lines(export, "sessions.jsonl")}
    assert [event["id"] for event in sessions["s-1"]["events"]] == [event["id"] for event in log["events"]]
    assert len(sessions["s-1"]["events"]) + len(sessions["s-2"]["events"]) == counts["events"]

    contents = {one["filename"]: export.read(one["file"]) for one in _lines(export, "artifacts.jsonl")}
    assert contents["files/report.txt"] == b"A report of ada-ada"
    assert contents["user:photo.png"] == b"A photo of ada-ada"
    [credential] = _lines(export, "credentials.jsonl")
    assert credential["credentialKey"] == "k"
    [given] = _lines(export, "given_feedback.jsonl")
    assert given["comment"] == "said by ada"


async def test_exported_sessions_can_be_imported(serve: Serve, tmp_path: Path) -> None:
    server = await _served(serve, tmp_path)
    export = await _exported(server, "ada")
    decode = wire.decoder(ExportedSession)
    target = InMemorySessionService()
    for line in export.read("sessions.jsonl").splitlines():
        assert await store_session(target, decode(line))
    copy = await target.get_session(app_name="desk", user_id="ada", session_id="s-1")
    original = await _state(server).sessions.get_session(app_name="desk", user_id="ada", session_id="s-1")
    assert copy is not None
    assert original is not None
    assert list(copy.events) == list(original.events)
    own = {key: value for key, value in original.state.items() if not key.startswith("user:")}
    assert copy.state.items() >= own.items()


async def test_nothing_of_an_erased_user_is_left(serve: Serve, tmp_path: Path) -> None:
    server = await _served(serve, tmp_path)
    before = await _snapshot(server, OTHER)
    erased = await server.client.delete("/apps/desk/users/ada")
    assert erased.status_code == 200, erased.text
    report = erased.json()
    assert report["isComplete"], report
    by_kind = {one["kind"]: one for one in report["data"]}
    for kind in ("sessions", "events", "runs", "requests", "schedules", "memories", "artifacts", "state", "spans"):
        assert by_kind[kind]["found"] == by_kind[kind]["deleted"] > 0, by_kind[kind]
    assert {one["left"] for one in report["data"]} == {0}
    assert any("greenroom db compact" in note for note in report["notes"])

    again = (await server.client.delete("/apps/desk/users/ada")).json()
    assert {(one["found"], one["left"]) for one in again["data"]} == {(0, 0)}

    after = await _snapshot(server, OTHER)
    feedback = [line for line in before.pop("feedback.jsonl").splitlines() if b"said by ada" not in line]
    assert after.pop("feedback.jsonl").splitlines() == feedback
    assert before.pop("counts")["feedback"] == after.pop("counts")["feedback"] + 1 == 2
    assert after == before

    database = tmp_path / "sessions.db"
    with sqlite3.connect(database) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = repr([connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables])
    connection.close()
    assert "'ada'" not in rows
    assert [secret for secret in (*SECRETS, "ada-secret-key", "said by ada") if secret in rows] == []
    assert OTHER in rows

    compact(str(database))
    for path in list(tmp_path.rglob("*")):  # noqa: ASYNC240
        assert "ada" not in path.parts
        data = path.read_bytes() if path.is_file() else b""
        found = [secret for secret in (*SECRETS, "ada-secret-key", "said by ada", "ada-ada") if secret.encode() in data]
        assert found == [], path


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_nothing_of_an_erased_user_is_left_in_postgresql(serve: Serve, tmp_path: Path, postgres_uri: str) -> None:
    server = await _served(serve, tmp_path)
    report = (await server.client.delete("/apps/desk/users/ada")).json()
    assert report["isComplete"], report
    assert {one["left"] for one in report["data"]} == {0}

    connection = await asyncpg.connect(postgres_uri)
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    rows = [
        (name, tuple(row))
        for (name,) in await connection.fetch(query)
        for row in await connection.fetch(f'SELECT * FROM "{name}"')
    ]
    await connection.close()
    assert [row for row in rows if "'ada'" in repr(row)] == [("state_versions", ("user", "desk", "ada", 3))]
    assert [secret for secret in (*SECRETS, "ada-secret-key", "said by ada") if secret in repr(rows)] == []
    assert OTHER in repr(rows)


async def test_an_erasure_cancels_running_runs(serve: Serve, tmp_path: Path) -> None:
    server = await _served(serve, tmp_path)
    client = server.client
    message = {"newMessage": {"role": "user", "parts": [{"text": "Wait"}]}}
    for session in ("s-3", "s-4"):
        assert (await client.post(f"/apps/desk/users/ada/sessions/{session}")).status_code == 200
        assert (await client.post(f"/apps/desk/users/ada/sessions/{session}/runs", json=message)).status_code == 202
    report = (await client.delete("/apps/desk/users/ada")).json()
    assert report["isComplete"], report
    assert (await client.get("/runs", params={"user_id": "ada"})).json()["runs"] == []
