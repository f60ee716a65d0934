"""`python -m benchmarks.encryption`: the CPU time of what a server does, with encryption at rest and without.

Both take turns, in processes of their own, and the medians of their CPU times are printed, so that other load on the
machine hardly matters. `--postgres URI` measures on an empty database of PostgreSQL instead of a SQLite file; its own
CPU time isn't counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from greenroom.agents.llm_agent import LlmAgent
from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.encryption.local_keys import add_key, keys_of_file
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry
from greenroom.server.application import create_app
from greenroom.server.settings import EncryptionSettings, ServerSettings
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.testing.scripted_model import ScriptedModel

ROUNDS = 7
_WORDS = "the ferry to Oslo leaves at nine and a ticket costs forty crowns "
_SESSION: dict[str, Any] = {"app_name": "bench", "user_id": "ann"}
_TURNS = 200
_EVENTS = 1000
_SEARCHES = 100
_ARTIFACT_BYTES = 20_000_000


async def measure(folder: Path, uri: str, key_file: str | None) -> dict[str, float]:
    """CPU milliseconds of each piece of work."""
    keys = None if key_file is None else keys_of_file(key_file)
    sessions = session_service_from_uri(uri, keys=keys)
    memory = memory_service_from_uri(uri, keys=keys)
    artifacts = artifact_service_from_uri((folder / "artifacts").as_uri(), keys=keys)
    app = create_app(
        agents=[LlmAgent(name="bench", model=ScriptedModel(lambda _: _WORDS * 3))],
        session_service=sessions,
        memory_service=memory,
        artifact_service=artifacts,
        settings=ServerSettings(
            auto_create_session=True,
            encryption=EncryptionSettings(keys=None if key_file is None else Path(key_file).as_uri()),
        ),
    )
    costs: dict[str, float] = {}
    async with app.lifespan():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def turns(count: int) -> None:
                for number in range(count):
                    body = {
                        "appName": "bench", "userId": "ann", "sessionId": f"s-{number // 10}",
                        "newMessage": {"role": "user", "parts": [{"text": _WORDS}]}, "stateDelta": {"count": number},
                    }  # fmt: skip
                    (await client.post("/run", json=body)).raise_for_status()

            await turns(20)
            costs["a turn (POST /run)"] = await _cpu_ms(lambda: turns(_TURNS), per=_TURNS)

        log = [
            Event(author="user", content=Content(role="user", parts=[Part(text=_WORDS * 6)])) for _ in range(_EVENTS)
        ]
        await sessions.create_session(**_SESSION, session_id="long", events=log)
        entries = [
            MemoryEntry(id=str(number), content=Content(role="user", parts=[Part(text=f"{_WORDS} {number}")]))
            for number in range(500)
        ]
        costs["storing 500 memories"] = await _cpu_ms(lambda: memory.add_memories(**_SESSION, memories=entries))

        async def search() -> None:
            for number in range(_SEARCHES):
                await memory.search_memory(**_SESSION, query=f"ferry {number}")

        costs["a search in 500 memories"] = await _cpu_ms(search, per=_SEARCHES)

        name: dict[str, Any] = {**_SESSION, "session_id": "long", "filename": "film"}
        part = Part.from_bytes(data=os.urandom(_ARTIFACT_BYTES), mime_type="video/mp4")
        costs["saving an artifact of 20 MB"] = await _cpu_ms(lambda: artifacts.save_artifact(**name, artifact=part))
        costs["loading it"] = await _cpu_ms(lambda: artifacts.load_artifact(**name))

    again = session_service_from_uri(uri, keys=keys)
    await again.list_apps()
    costs[f"reading a session of {_EVENTS} events"] = await _cpu_ms(
        lambda: again.get_session(**_SESSION, session_id="long")
    )
    await again.close()
    return costs


async def _cpu_ms(work: Callable[[], Awaitable[object]], *, per: int = 1) -> float:
    started = time.process_time()
    await work()
    return (time.process_time() - started) * 1000 / per


def _measured(postgres: str | None, *, is_encrypted: bool) -> dict[str, float]:
    """Measures in a new process, on new stores."""
    with tempfile.TemporaryDirectory() as folder:
        key_file = str(Path(folder, "keys.toml"))
        add_key(key_file)
        uri = postgres or f"sqlite:///{folder}/bench.db"
        if postgres is not None:
            asyncio.run(_clear(postgres))
        command = [sys.executable, "-m", "benchmarks.encryption", "--one", folder, uri]
        output = subprocess.run(
            [*command, key_file] if is_encrypted else command, check=True, capture_output=True, text=True
        )
        return json.loads(output.stdout)


async def _clear(uri: str) -> None:
    from greenroom.postgres.connection import connect

    connection = await connect(uri)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", metavar="URI", help="an empty database, which is cleared")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        folder, uri, *keys = arguments.one
        print(json.dumps(asyncio.run(measure(Path(folder), uri, keys[0] if keys else None))))
        return

    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(arguments.rounds):
        for is_encrypted in (False, True):
            found[is_encrypted].append(_measured(arguments.postgres, is_encrypted=is_encrypted))
    print("| CPU ms | off | on | |\n|---|---|---|---|")
    for name in found[False][0]:
        off, on = (statistics.median(costs[name] for costs in found[each]) for each in (False, True))
        print(f"| {name} | {off:.2f} | {on:.2f} | {on / off - 1:+.0%} |")


if __name__ == "__main__":
    main()
