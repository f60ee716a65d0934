"""schemathesis asks a real server whatever `/openapi.json` allows, and what it forbids.

GREENROOM_FUZZ says how many requests, GREENROOM_SEED repeats them.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from greenroom.server.api_keys import ApiKeyFile
from tests.durability.server_process import REPOSITORY, ServerProcess, server_in
from tests.fuzz.served import COUNTS

REQUESTS = int(os.environ.get("GREENROOM_FUZZ", "300"))
SEED = int(os.environ.get("GREENROOM_SEED") or random.randrange(2**32))
OPERATIONS = 90
"""A few less than there are: each has as many requests per round."""

WORTH_ALL_PHASES = 10_000
"""The edges of each parameter, and sequences of requests, take thousands by themselves."""

COURSES = (
    [(False, 0.0), (True, 0.1)] if REQUESTS < WORTH_ALL_PHASES else [(k, c) for k in (False, True) for c in (0.0, 0.1)]
)
"""With a key, share that is cut off."""

SCOPES = ("run", "read", "manage", "debug")

CONFIG = Path(__file__).with_name("schemathesis.toml")
PLACE = "/apps/echo/users/ann/sessions"


@pytest.mark.fuzz
@pytest.mark.parametrize(("with_key", "cut"), COURSES)
async def test_whatever_is_asked_is_answered_as_documented(with_key: bool, cut: float, tmp_path: Path) -> None:
    key = None
    if with_key:
        _, key = ApiKeyFile(tmp_path / "keys.db").create(name="fuzz", subject="ann", scopes=SCOPES)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with (
        server_in(tmp_path, module="tests.fuzz.served") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30, headers=headers) as http,
    ):
        await server.start()
        await _furnish(http, tmp_path)
        counts, rounds, cuts = await _quiet(http), 0, tmp_path / "cuts"
        while (missing := REQUESTS - counts.total()) > 0:
            phases = "examples,coverage,fuzzing,stateful" if not rounds and REQUESTS >= WORTH_ALL_PHASES else "fuzzing"
            examples = math.ceil(missing / OPERATIONS) if phases == "fuzzing" else 10
            done = await asyncio.to_thread(
                _ask, server, phases=phases, examples=examples, seed=SEED + rounds, key=key, cut=cut, cuts=cuts
            )
            assert done.returncode == 0, f"seed {SEED + rounds}: {done.stdout}"
            counts, rounds = await _quiet(http), rounds + 1
        broken = cuts.stat().st_size
        print(f"\nseed {SEED}, {counts.total()} answered {dict(sorted(counts.items()))}, {broken} cut off")
        assert not {status for status in counts if status.startswith("5")} - {"501", "504"}
        assert "Traceback" not in server.log(), server.log()
        assert (broken > 0.05 * REQUESTS) if cut else (broken == 0)


def _ask(
    server: ServerProcess, *, phases: str, examples: int, seed: int, key: str | None, cut: float, cuts: Path
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(server.folder / CONFIG.name), "run",
        f"{server.url}/openapi.json", "--checks", "all", "--phases", phases, "--max-examples", str(examples),
        "--seed", str(seed), "--no-color", *(("--header", f"Authorization: Bearer {key}") if key else ()),
    ]  # fmt: skip
    own = {
        "GREENROOM_FUZZ_CUT": str(cut),
        "GREENROOM_FUZZ_CUTS": str(cuts),
        "GREENROOM_FUZZ_URL": server.url,
        "GREENROOM_SEED": str(seed),
        "GREENROOM_API_KEY": key or "",
        "PYTHONPATH": str(REPOSITORY),
    }
    return subprocess.run(
        command,
        cwd=server.folder,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


async def _furnish(http: httpx.AsyncClient, folder: Path) -> None:
    """What the dictionaries of schemathesis.toml name."""
    for number in range(1, 5):
        (await http.post(PLACE, json={"sessionId": f"s-{number}"})).raise_for_status()
    for name in ("notes.txt", "user:photo", "dir/a b"):
        body = {"filename": name, "artifact": {"text": "noted"}}
        (await http.post(f"{PLACE}/s-1/artifacts", json=body)).raise_for_status()
    with (folder / "runs.txt").open("w") as runs:
        for session in ("s-1", "s-2"):
            started = await http.post(f"{PLACE}/{session}/runs", json={"newMessage": {"parts": [{"text": "hi"}]}})
            runs.write(f'"{started.raise_for_status().json()["id"]}"\n')
    (folder / CONFIG.name).write_text(CONFIG.read_text())


async def _quiet(http: httpx.AsyncClient) -> Counter[str]:
    """The server's counts, when it has nothing to do any more."""
    async with asyncio.timeout(30):
        while True:
            counts = Counter[str]((await http.get(COUNTS)).json())
            if counts.pop("open") == 0:
                return counts
            await asyncio.sleep(0.05)
