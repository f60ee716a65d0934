"""schemathesis asks a real server whatever `/openapi.json` allows, and what it forbids.

GREENROOM_FUZZ says how many requests, GREENROOM_SEED repeats them.
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from greenroom.server.access.api_key_file import ApiKeyFile
from tests.durability.server_process import REPOSITORY, ServerProcess, server_in
from tests.fuzz.counts import answered
from tests.fuzz.extent import ENOUGH_FOR_EACH_STATUS, IS_LONG, REQUESTS
from tests.processes import END_WITH_PARENT
from tests.seed import SEED

REQUESTS_PER_EXAMPLE = 300
"""A few less than are sent for one example of each operation, of which the checks of schemathesis repeat most with
other keys, methods and headers."""


@dataclass(frozen=True)
class Course:
    """with_key: whether the server asks for one. cut: share of the requests that are cut off. with_limits: whether it
    has limits that are met again and again. meets: statuses that must have come up."""

    with_key: bool = False
    cut: float = 0.0
    with_limits: bool = False
    meets: Collection[str] = ("200", "404", "422")

    def __str__(self) -> str:
        words = {"key": self.with_key, "cut": self.cut, "limits": self.with_limits}
        return "-".join(word for word, is_so in words.items() if is_so) or "open"


LIMITED = Course(with_key=True, with_limits=True, meets=("200", "401", "404", "422", "429"))
SHORT = [Course(with_key=True, cut=0.1, meets=("200", "401", "404", "422")), LIMITED]
LONG = [
    *(Course(with_key=key, cut=cut, meets=["200", "404", "422", *(["401"] if key else [])])
      for key in (False, True) for cut in (0.0, 0.1)),
    Course(with_key=True, with_limits=True, meets=(*LIMITED.meets, "409", "413", "504")),
]  # fmt: skip

AUTH = """
[auth.openapi.bearer]
bearer = "${GREENROOM_API_KEY}"
"""
"""A key that is given like that, `ignored_auth` leaves out, and replaces by wrong ones; a header stays."""

SCOPES = ("run", "read", "manage", "debug", "audit")

CONFIG = Path(__file__).with_name("schemathesis.toml")
PLACE = "/apps/echo/users/ann/sessions"


@pytest.mark.fuzz
@pytest.mark.parametrize("course", LONG if IS_LONG else SHORT, ids=str)
async def test_whatever_is_asked_is_answered_as_documented(course: Course, tmp_path: Path) -> None:
    key = None
    if course.with_key:
        _, key = ApiKeyFile(tmp_path / "keys.db").create(name="fuzz", subject="ann", scopes=SCOPES)
    limited = "1" if course.with_limits else ""
    cuts = tmp_path / "cuts"
    async with (
        server_in(tmp_path, module="tests.fuzz.served", GREENROOM_FUZZ_LIMITED=limited) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        if key is not None:
            http.headers["authorization"] = f"Bearer {key}"
        await server.start()
        await _furnish(http, tmp_path)
        (tmp_path / CONFIG.name).write_text(CONFIG.read_text() + (AUTH if key else ""))
        environment = {
            "GREENROOM_FUZZ_CUT": str(course.cut),
            "GREENROOM_FUZZ_CUTS": str(cuts),
            "GREENROOM_FUZZ_LIMITED": limited,
            "GREENROOM_FUZZ_URL": server.url,
            "GREENROOM_API_KEY": key or "",
            "PYTHONPATH": str(REPOSITORY),
        }
        counts, rounds = await answered(http), 0
        while (missing := REQUESTS - counts.total()) > 0:
            with_all = IS_LONG and not rounds and not course.with_limits  # which refuses clients that ask too fast
            await asyncio.to_thread(
                _ask,
                server,
                phases="examples,coverage,fuzzing,stateful" if with_all else "fuzzing",
                examples=10 if with_all else math.ceil(missing / REQUESTS_PER_EXAMPLE),
                seed=SEED + rounds,
                environment=environment,
            )
            counts, rounds = await answered(http), rounds + 1
        broken = cuts.stat().st_size
        print(f"\n{course}, seed {SEED}: {counts.total()} answered {dict(sorted(counts.items()))}, {broken} cut off")
        assert not {status for status in counts if status.startswith("5")} - {"501", "504"}
        assert "Traceback" not in server.log(), server.log()
        assert (broken > 0.05 * REQUESTS) if course.cut else (broken == 0)
        assert set(course.meets) <= set(counts) or REQUESTS < ENOUGH_FOR_EACH_STATUS
        assert course.with_limits or not set(counts) & {"413", "429"}
        assert counts["429"] < counts.total() / 2


def _ask(server: ServerProcess, *, phases: str, examples: int, seed: int, environment: Mapping[str, str]) -> None:
    command = [
        *END_WITH_PARENT, sys.executable, "-m", "schemathesis.cli", "--config-file", str(server.folder / CONFIG.name), "run",
        f"{server.url}/openapi.json", "--checks", "all", "--phases", phases, "--max-examples", str(examples),
        "--seed", str(seed), "--no-color",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=server.folder,
        env={**os.environ, **environment, "GREENROOM_SEED": str(seed)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stdout}"


async def _furnish(http: httpx.AsyncClient, folder: Path) -> None:
    """Makes the objects that the dictionaries of schemathesis.toml name."""
    for number in range(1, 5):
        (await http.post(PLACE, json={"sessionId": f"s-{number}"})).raise_for_status()
    for name in ("notes.txt", "user:photo", "dir/a b"):
        body = {"filename": name, "artifact": {"text": "noted"}}
        (await http.post(f"{PLACE}/s-1/artifacts", json=body)).raise_for_status()
    with (folder / "runs.txt").open("w") as runs:
        for session in ("s-1", "s-2"):
            started = await http.post(f"{PLACE}/{session}/runs", json={"newMessage": {"parts": [{"text": "hi"}]}})
            runs.write(f'"{started.raise_for_status().json()["id"]}"\n')
