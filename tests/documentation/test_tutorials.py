"""Tutorials are followed literally: their files written, their commands typed, and the output compared with the pages.

`make docs-test` follows the long one from `pip install` on, in an empty folder with an empty home.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from greenroom.models.local.files import cache_dir
from greenroom.records.content import FunctionCall, Part
from tests.documentation.pages import ROOT, Command, blocks_of, steps_in
from tests.documentation.reader import reading
from tests.documentation.releases import build_next_release, build_release
from tests.models.wire.openai_chat import ChatServer

DOCS = ROOT / "docs"
TUTORIAL = sorted((DOCS / "tutorial").glob("*.md"))
SHOWN_DATABASE = "postgresql://greenroom:secret@localhost/greenroom"

INSTALLED = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
"""The path to the checkout's environment, which short tutorials use."""

is_long = pytest.mark.skipif("GREENROOM_TUTORIALS" not in os.environ, reason="`make docs-test` runs it")


class OpenAI(ChatServer):
    """The vendor that the second tutorial names. Understands that page's messages."""

    async def __call__(self, request: Request) -> Response:
        last = (await request.json())["messages"][-1]
        self.say(Part(text="Done.") if last["role"] == "tool" and "sent" in last["content"] else _call_for(last))
        return await super().__call__(request)


def _call_for(message: dict[str, Any]) -> Part:
    if "Remind Bob" in message["content"]:
        return _call("wait", seconds=1)
    if message["role"] == "tool":
        return _call("send_mail", to="bob", text="Please water the plants.")
    return _call("send_mail", to="team", text="Please send your reports.")


def _call(name: str, **args: Any) -> Part:
    return Part(function_call=FunctionCall(id=f"call-{name}", name=name, args=args))


async def test_the_reminders(tmp_path: Path) -> None:
    async with OpenAI().serving() as vendor:
        environment = {"PATH": INSTALLED, "OPENAI_BASE_URL": f"{vendor.url}/v1"}
        with reading(tmp_path, environment) as reader:
            await asyncio.to_thread(reader.follow, DOCS / "reminders.md")


def test_moving_an_app_from_adk(tmp_path: Path) -> None:
    with reading(tmp_path, {"PATH": INSTALLED, "GREENROOM_CACHE_DIR": str(cache_dir())}) as reader:
        reader.follow(DOCS / "migration.md")


@is_long
@pytest.mark.timeout(3600)
def test_the_tutorial(tmp_path: Path, empty_postgres_uri: str) -> None:
    """With podman in place of Docker, and images made of this machine's files in place of a registry's."""
    wheels = tmp_path / "wheels"
    build_release(wheels)
    with reading(tmp_path, _empty_environment(tmp_path, wheels)) as reader:
        reader.comparison.real[SHOWN_DATABASE] = empty_postgres_uri
        for page in TUTORIAL:
            if page.stem.startswith("6-"):
                continue
            for step in steps_in(blocks_of(page)):
                if isinstance(step, Command) and "--upgrade greenroom" in step.line:
                    (scratch := tmp_path / "next").mkdir()
                    build_next_release(wheels, scratch)
                print(step.place, step.line if isinstance(step, Command) else step.path, flush=True)
                reader.do(step)


def _empty_environment(folder: Path, wheels: Path) -> dict[str, str]:
    """Without the checkout and its packages. pip finds greenroom's wheel, and all else as on this machine."""
    kept = ("PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    environment = {name: value for name, value in os.environ.items() if name.upper().startswith(kept)}
    links = " ".join([str(wheels), *environment.get("PIP_FIND_LINKS", "").split()])
    path = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    return {**environment, "PATH": path, "PIP_FIND_LINKS": links, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
