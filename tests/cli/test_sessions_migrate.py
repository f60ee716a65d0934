"""Conversations are copied between stores, and from the databases of google-adk.

tests/sessions/adk has two databases that google-adk 2.13 made by `make_database.py`, one of each schema version, with
what is in them as ADK reads it. Where there is an environment with google-adk and SQLAlchemy, they are made anew; the
benchmarks make it (`benchmarks.peers.adk_database_environment`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from benchmarks.peers import PEERS
from greenroom.artifacts.files import FileArtifactService
from greenroom.records import wire
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.records.state import REMOVED
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sessions.sqlite import SqliteSessionService
from tests.cli.conftest import Cli

Json = dict[str, Any]
HERE = Path(__file__).parents[1] / "sessions" / "adk"
ADK_PYTHON = PEERS / "adk-database" / "bin" / "python"


def recorded(version: int) -> Json:
    return json.loads((HERE / f"version_{version}.json").read_text())


async def copy_to_postgres(file: Path, uri: str) -> None:
    """As SQLAlchemy lays the tables out there."""
    kinds = {"state": "JSONB", "actions": "BYTEA", "event_data": "JSONB", "content": "JSONB", "partial": "BOOLEAN"}
    kinds |= dict.fromkeys(("turn_complete", "interrupted"), "BOOLEAN")
    kinds |= dict.fromkeys(("timestamp", "create_time", "update_time"), "TIMESTAMP")
    connection: Any = await asyncpg.connect(uri)
    with closing(sqlite3.connect(file)) as source:
        for table in ("sessions", "events", "app_states", "user_states"):
            rows = source.execute(f"SELECT * FROM {table}")
            names: list[str] = [column[0] for column in rows.description]
            types = [kinds.get(name, "JSONB" if name.endswith("metadata") else "TEXT") for name in names]
            columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
            await connection.execute(f"CREATE TABLE {table} ({columns})")
            casts = [
                f"${n}::{'TEXT' if kind in ('TIMESTAMP', 'BOOLEAN') else kind}::{kind}"
                for n, kind in enumerate(types, 1)
            ]
            for row in rows:
                values = [
                    str(value) if kind == "BOOLEAN" and value is not None else value
                    for value, kind in zip(row, types, strict=True)
                ]
                await connection.execute(f"INSERT INTO {table} VALUES ({', '.join(casts)})", *values)
    await connection.close()


def as_adk_sends(session: Json, version: int) -> Json:
    """Drops fields that are not stored: nulls, and in schema version 0 the nodes."""

    def event(fields: Json) -> Json:
        found = {name: value for name, value in fields.items() if value not in (None, [])}
        if version == 0:
            found.pop("nodeInfo", None)
        return json.loads(
            re.sub(r'(?<="data": ")[^"]+', lambda data: data[0].replace("-", "+").replace("_", "/"), json.dumps(found))
        )

    return {**session, "events": [event(one) for one in session["events"]]}


async def content_of(uri: str) -> dict[str, Json]:
    """The sessions by their ids."""
    service = session_service_from_uri(uri)
    found: dict[str, Json] = {}
    for app in await service.list_apps():
        for listed in (await service.list_sessions(app_name=app)).sessions:
            session = await service.get_session(app_name=app, user_id=listed.user_id, session_id=listed.id)
            assert session is not None
            found[session.id] = wire.to_plain(session)
    await service.close()
    return found


async def check_migrated(uri: str, expected: Json, version: int) -> None:
    found = await content_of(uri)
    assert set(found) == {session["id"] for session in expected["sessions"]}
    for session in expected["sessions"]:
        wanted, got = as_adk_sends(session, version), found[session["id"]]
        if wanted["events"]:
            assert got["lastUpdateTime"] == pytest.approx(wanted["lastUpdateTime"], abs=1e-5)
        assert {name: got[name] for name in ("appName", "userId", "state")} == {
            name: wanted[name] for name in ("appName", "userId", "state")
        }
        assert [as_adk_sends({"state": {}, "events": [event]}, 1)["events"][0] for event in got["events"]] == wanted[
            "events"
        ]


async def check_artifacts(folder: Path, expected: Json) -> None:
    service = FileArtifactService(folder)
    for app, user, session, name, version, data, kind in expected["artifacts"]:
        where: Json = {"app_name": app, "user_id": user, "session_id": session, "filename": name}
        part = await service.load_artifact(**where, version=version)
        assert part is not None
        assert part.inline_data is not None
        assert (part.inline_data.data, part.inline_data.mime_type) == (base64.b64decode(data), kind)
        versions = {one[4] for one in expected["artifacts"] if one[:4] == [app, user, session, name]}
        assert set(await service.list_versions(**where)) == versions


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_database_of_adk_is_migrated(
    cli: Cli, request: pytest.FixtureRequest, database: str, version: int
) -> None:
    file, expected = HERE / f"version_{version}.sqlite", recorded(version)
    if database == "sqlite":
        shutil.copy(file, cli.folder / "adk.db")
        source = "sqlite+aiosqlite:///adk.db"
    else:
        source = request.getfixturevalue("empty_postgres_uri")
        await copy_to_postgres(file, source)
    artifacts = FileArtifactService(cli.folder / "files")
    for app, user, session, name, _, data, kind in expected["artifacts"]:
        part = Part.from_bytes(data=base64.b64decode(data), mime_type=kind)
        if name.startswith("user:") and not session.endswith("0"):
            continue  # listed with each session of the user
        await artifacts.save_artifact(app_name=app, user_id=user, session_id=session, filename=name, artifact=part)
    folders = ("--from-artifacts", (cli.folder / "files").as_uri(), "--to-artifacts", (cli.folder / "copies").as_uri())
    done = cli("sessions", "migrate", source, "sqlite:///ours.db", *folders)
    assert done.stderr.startswith("5 sessions copied, 0 already existed\n"), done.stderr
    assert "5 sessions with " in done.stdout
    target = f"sqlite:///{cli.folder / 'ours.db'}"
    await check_migrated(target, expected, version)
    await check_artifacts(cli.folder / "copies", expected)
    again = cli("sessions", "migrate", source, "sqlite:///ours.db", *folders)
    assert again.stderr == "0 sessions copied, 5 already existed\n0 artifact versions copied\n"
    assert again.stdout == done.stdout


@pytest.mark.skipif(not ADK_PYTHON.exists(), reason="there is no environment with google-adk and SQLAlchemy")
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_new_database_of_adk_is_migrated(
    cli: Cli, request: pytest.FixtureRequest, database: str, version: int
) -> None:
    if database == "sqlite":
        uri = f"sqlite+aiosqlite:///{cli.folder / 'adk.db'}"
    else:
        uri = request.getfixturevalue("empty_postgres_uri").replace("postgresql:", "postgresql+asyncpg:")
    command = [ADK_PYTHON, HERE / "make_database.py", uri, str(version), cli.folder / "files"]
    made = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    expected = json.loads(made.stdout)
    folders = ("--from-artifacts", (cli.folder / "files").as_uri(), "--to-artifacts", (cli.folder / "copies").as_uri())
    done = cli("sessions", "migrate", uri, "sqlite:///ours.db", *folders)
    assert done.returncode == 0, done.stderr
    await check_migrated(f"sqlite:///{cli.folder / 'ours.db'}", expected, version)
    await check_artifacts(cli.folder / "copies", expected)


class _Command:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return Path.write_text, cast("Any", (Path("ran"), "by a pickle"))


@pytest.mark.parametrize("data", [pickle.dumps(_Command()), b"\x80\x05damaged"])
def test_pickled_actions_execute_nothing(cli: Cli, data: bytes) -> None:
    shutil.copy(HERE / "version_0.sqlite", cli.folder / "adk.db")
    with closing(sqlite3.connect(cli.folder / "adk.db")) as connection:
        connection.execute("UPDATE events SET actions = ? WHERE session_id = 'ada-0'", (data,))
        connection.commit()
    done = cli("sessions", "migrate", "sqlite:///adk.db", "sqlite:///ours.db")
    assert done.returncode == 1
    assert re.search(r"Event \S+ of session ada-0: its pickled actions ", done.stderr), done.stderr
    assert not (cli.folder / "ran").exists()


async def _fill(uri: str, sessions: int) -> None:
    service = session_service_from_uri(uri)
    for number in range(sessions):
        owner: Json = {"app_name": f"app-{number % 2}", "user_id": f"user-{number % 3}", "session_id": f"s-{number}"}
        session = await service.create_session(**owner, state={"n": 0, "kept": [number]})
        events = [Event(author="user", timestamp=float(1000 * number + n)) for n in range(20)]
        for n, event in enumerate(events):
            event.actions.state_delta = {"n": n, "user:last": number, "app:last": number, "user:gone": 1}
        events[-1].actions.state_delta["user:gone"] = None
        await service.append(session, *events)
    await service.close()


async def test_stores_are_migrated_there_and_back(cli: Cli, postgres_uri: str) -> None:
    first, last = (f"sqlite:///{cli.folder / name}" for name in ("first.db", "last.db"))
    await _fill(first, 7)
    assert (
        cli("sessions", "migrate", first, postgres_uri).stdout == cli("sessions", "migrate", postgres_uri, last).stdout
    )
    assert await content_of(first) == await content_of(last) == await content_of(postgres_uri)
    service = session_service_from_uri(last)
    past = await service.list_events(app_name="app-1", user_id="user-1", session_id="s-1")
    assert past.last_seq == 20
    await service.close()


async def test_keys_that_were_removed_from_shared_state_stay_removed(cli: Cli) -> None:
    source = f"sqlite:///{cli.folder / 'a.db'}"
    service = session_service_from_uri(source)
    session = await service.create_session(app_name="app", user_id="ada", session_id="s", state={"user:null": None})
    for value in (1, REMOVED):
        event = Event(author="user")
        event.actions.state_delta = {"user:gone": value, "app:gone": value}
        await service.append(session, event)
    await service.close()

    done = cli("sessions", "migrate", "sqlite:///a.db", "sqlite:///b.db")
    assert (done.returncode, done.stderr) == (0, "1 sessions copied, 0 already existed\n")
    copied = await content_of(f"sqlite:///{cli.folder / 'b.db'}")
    assert copied == await content_of(source)
    assert copied["s"]["state"] == {"user:null": None}


async def test_one_app_is_migrated(cli: Cli) -> None:
    await _fill(f"sqlite:///{cli.folder / 'a.db'}", 4)
    done = cli("sessions", "migrate", "sqlite:///a.db", "sqlite:///b.db", "--app", "app-1")
    assert done.stderr == "2 sessions copied, 0 already existed\n"
    assert set(await content_of(f"sqlite:///{cli.folder / 'b.db'}")) == {"s-1", "s-3"}


async def test_differing_sessions_are_reported(cli: Cli) -> None:
    await _fill(f"sqlite:///{cli.folder / 'a.db'}", 3)
    service = SqliteSessionService(cli.folder / "b.db")
    await service.create_session(app_name="app-1", user_id="user-1", session_id="s-1", state={"other": True})
    await service.close()
    done = cli("sessions", "migrate", "sqlite:///a.db", "sqlite:///b.db")
    assert done.returncode == 1
    assert "1 sessions differ between the stores: s-1 of app app-1, user user-1" in done.stderr
    missing = cli("sessions", "migrate", "sqlite:///none.db", "sqlite:///b.db")
    assert (missing.returncode, missing.stderr) == (1, "There is no file none.db\n")


@pytest.mark.kill
async def test_a_killed_migration_is_continued(cli: Cli) -> None:
    await _fill(f"sqlite:///{cli.folder / 'a.db'}", 60)
    for copied in (1, 20, 40):
        process = cli.start("sessions", "migrate", "sqlite:///a.db", "sqlite:///b.db")
        while process.poll() is None and _count(cli.folder / "b.db") < copied:
            await asyncio.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = cli("sessions", "migrate", "sqlite:///a.db", "sqlite:///b.db")
    assert done.stdout.startswith("60 sessions with 1200 events are equal in both stores"), done.stderr
    assert await content_of(f"sqlite:///{cli.folder / 'a.db'}") == await content_of(f"sqlite:///{cli.folder / 'b.db'}")


def _count(file: Path) -> int:
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("SELECT count(*) FROM sessions").fetchone()[0]
        except sqlite3.OperationalError:  # before its tables are made
            return 0
