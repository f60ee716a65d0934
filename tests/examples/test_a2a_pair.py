"""The A2A pair in two processes: a travel agency's server asks a hotel's server."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.examples.gallery import EXAMPLES, ROOT, check_transcript, transcript
from tests.processes import END_WITH_PARENT
from tests.server.serving import Json, until

QUESTION = "A double room in Oslo for two nights, for Ada."


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@contextmanager
def process(name: str, port: int, data: Path, *flags: str, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """A server of one of the two apps."""
    program = [sys.executable, "-m", "tests.examples.scripted_command", name]
    stores = ["--session-service", f"sqlite:///{data}/{name}.db", "--artifact-service", "memory://"]
    command = [*END_WITH_PARENT, *program, "serve", str(EXAMPLES / "a2a_pair" / name), "--port", str(port)]
    started = subprocess.Popen([*command, *stores, *flags], cwd=ROOT, env={**os.environ, **environment})
    try:
        yield started
    finally:
        started.terminate()
        started.wait(20)


async def is_ready(port: int) -> bool:
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def test_an_agent_of_one_process_books_with_the_agent_of_another(tmp_path: Path) -> None:
    hotel, travel = free_port(), free_port()
    with (
        process("hotel", hotel, tmp_path, "--a2a"),
        process("travel", travel, tmp_path, HOTEL_URL=f"http://127.0.0.1:{hotel}"),
    ):
        await until(lambda: is_ready(hotel))
        await until(lambda: is_ready(travel))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{travel}", timeout=30) as client:
            path = "/apps/travel/users/user/sessions/s-1"
            await client.post(path, json={})
            body = {"appName": "travel", "userId": "user", "sessionId": "s-1"}
            message = {"role": "user", "parts": [{"text": QUESTION}]}
            reply = await client.post("/run", json={**body, "newMessage": message})
            assert reply.status_code == 200, reply.text
            events = (await client.get(path)).json()["events"]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{hotel}") as client:
            (run,) = (await client.get("/runs")).json()["runs"]
            of_hotel: list[Json] = (
                await client.get(f"/apps/hotel/users/{run['userId']}/sessions/{run['sessionId']}")
            ).json()["events"]

    (answer,) = [line for line in transcript(of_hotel).splitlines() if line.startswith("hotel: ")]
    assert answer.startswith("hotel: A double room for two nights is booked for Ada: 280 euros")
    (reference,) = re.findall(r"H-[0-9a-z-]+", answer)
    shown = {reference: "H-1"}
    asking, asked = transcript(events, shown), transcript(of_hotel, shown)
    check_transcript("a2a_pair", f"At the travel agency:\n\n{asking}\n\nAt the hotel:\n\n{asked}")
