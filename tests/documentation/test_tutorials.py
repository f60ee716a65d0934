"""Tutorials are followed literally: their files written, their commands typed, and the output compared with the pages.

`make docs-test` follows the long one from `pip install` on, in an empty folder with an empty home.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from greenroom.models.local.files import cache_dir
from greenroom.records.content import FunctionCall, Part
from tests.documentation.pages import ROOT, Command, blocks_of, steps_in
from tests.documentation.reader import Reader, reading
from tests.documentation.releases import build_next_release, build_release
from tests.environments.container_image import write_root_file_system
from tests.environments.podman import PodmanService
from tests.environments.wheels import write_wheels
from tests.models.wire.openai_chat import ChatServer
from tests.postgres.postgres_server import PostgresServer

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


class OpenAIForWeather(ChatServer):
    """Plays the agent of the page on improving, which says until when it rains if its instruction asks for that, and the
    judge of the answers.
    """

    async def __call__(self, request: Request) -> Response:
        messages = (await request.json())["messages"]
        instruction, last = messages[0]["content"], messages[-1]
        if instruction.startswith("Judge"):
            holds = "until 4 pm" in last["content"].partition("Answer:")[2]
            self.say(Part(text=json.dumps({"rationale": "It is read.", "holds": holds})))
        elif last["role"] != "tool":
            self.say(_call("get_forecast", city="Oslo"))
        elif "until when" in instruction:
            self.say(Part(text="Yes, it rains in Oslo until 4 pm."))
        else:
            self.say(Part(text="Yes, it rains in Oslo today."))
        return await super().__call__(request)


async def test_a_complaint_leads_to_a_better_agent(tmp_path: Path) -> None:
    async with OpenAIForWeather().serving() as vendor:
        environment = {"PATH": INSTALLED, "OPENAI_BASE_URL": f"{vendor.url}/v1"}
        with reading(tmp_path, environment) as reader:
            await asyncio.to_thread(reader.follow, DOCS / "improving.md")


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
def test_the_tutorial(
    tmp_path: Path, empty_postgres_uri: str, postgres_server: PostgresServer, podman: PodmanService
) -> None:
    wheels = tmp_path / "wheels"
    build_release(wheels)
    with reading(tmp_path, _empty_environment(tmp_path, wheels)) as reader:
        _stand_in_for_docker(tmp_path, reader, podman, postgres_server.folder)
        reader.comparison.real[SHOWN_DATABASE] = empty_postgres_uri
        for step in chain.from_iterable(steps_in(blocks_of(page)) for page in TUTORIAL):
            if isinstance(step, Command):
                print(step.place, step.line, flush=True)
                if "docker build" in step.line:
                    _prepare_image(reader.folder / "agents", tmp_path / "root.tar", podman)
                elif "--upgrade greenroom" in step.line:
                    build_next_release(wheels, tmp_path / "next")
            reader.do(step)


def _stand_in_for_docker(folder: Path, reader: Reader, podman: PodmanService, sockets: Path) -> None:
    """Podman takes Docker's commands. Containers are in the network of the machine, where the port is another one than
    the page's; they reach PostgreSQL by its socket, and PyPI as this machine does.
    """
    sockets.chmod(0o755)
    for program, text in {folder / "bin" / "docker": _DOCKER, folder / "pip3": _PIP}.items():
        program.parent.mkdir(exist_ok=True)
        program.write_text(text.format(image=_PYTHON_IMAGE, port=reader.port, sockets=sockets, folder=folder))
        program.chmod(0o755)
    reader.environment["PATH"] = f"{folder}/bin:{reader.environment['PATH']}:/usr/sbin:/sbin"
    reader.environment.update({name: value for name, value in podman.env.items() if name.startswith("CONTAINERS_")})


def _prepare_image(agents: Path, root: Path, podman: PodmanService) -> None:
    """No registry can be reached: this machine's files are the base image, and its packages are installed."""
    requirements = agents / "requirements.txt"
    write_wheels(agents / "wheels", requirements.read_text().strip())
    requirements.write_text(f"--no-index\n{requirements.read_text()}")
    write_root_file_system(root, with_pip=True)
    podman.run("import", "--quiet", str(root), _PYTHON_IMAGE)


_PYTHON_IMAGE = "localhost/greenroom-tests:python"

_PIP = """#!/bin/sh
exec /usr/bin/python3 -m pip "$@"
"""
"""Images of Python have it."""

_DOCKER = """#!/bin/sh
command=$1
shift
case $command in
    build) exec podman build --format=docker --network=none --build-arg=PYTHON_IMAGE={image} "$@" ;;
    run) exec podman --log-level=fatal run --env=GREENROOM_PORT={port} --volume={sockets}:{sockets} --env=PIP_CERT \\
        --volume={folder}/pip3:/usr/local/bin/pip3:ro --volume=/etc/ssl/certs:/etc/ssl/certs:ro "$@" ;;
    *) exec podman --log-level=fatal "$command" "$@" ;;
esac
"""


def _empty_environment(folder: Path, wheels: Path) -> dict[str, str]:
    """Without the checkout and its packages. pip finds greenroom's wheel, and all else as on this machine."""
    kept = ("PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    environment = {name: value for name, value in os.environ.items() if name.upper().startswith(kept)}
    links = " ".join([str(wheels), *environment.get("PIP_FIND_LINKS", "").split()])
    path = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    return {**environment, "PATH": path, "PIP_FIND_LINKS": links, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
