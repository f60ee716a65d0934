"""For any names in a request, no file is read or written but the store's own, and no code is loaded but the apps'."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.server.endpoint import Endpoint
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.conftest import Serve
from tests.server.security.rules import status_of
from tests.server.serving import Serving
from tests.server.test_endpoint_table import VALUES, body_for, each, filled

CANARY = b"nobody but the owner of this machine may read this"

UP = "../" * 8
TRAVERSALS = [
    "../canary.txt", "../../canary.txt", UP + "canary.txt", UP + "etc/passwd", "/etc/passwd", "//etc/passwd",
    "file:///etc/passwd", "..\\..\\canary.txt", "..%2f..%2fcanary.txt", "%2e%2e/canary.txt", "....//....//canary.txt",
    "./../canary.txt", "a/../../canary.txt", "user:../../canary.txt", "user:/etc/passwd", "..\x2f\x00.png", "~/x", "..",
    ".", "../evil", "..%00/evil", "agents/../../evil", "evil.agent", "..evil", "\u2025/canary.txt", "．．／canary.txt",
    "canary.txt", "/proc/self/environ", "C:\\Windows\\win.ini", "\\\\host\\share", "$(touch pwned)", "`id`", "%n%s",
]  # fmt: skip
RAW = ["%c0%ae%c0%ae%c0%afcanary.txt", "..%5c..%5ccanary.txt", "%2e%2e%2fcanary.txt", "%252e%252e%252fcanary.txt"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a server: apps, artifacts and a database; beside them what is none of its business."""
    (tmp_path / "canary.txt").write_bytes(CANARY)
    for folder, does in (("agents/echo", ""), ("evil", "open(__file__ + '.ran', 'w').close()")):
        code = f"{does}\nfrom tests.server.agents import echo\nroot_agent = echo()\n"
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "agent.py").write_text(code)
    (tmp_path / "agents/.greenroom").mkdir()
    return tmp_path


@pytest.fixture
async def server(serve: Serve, home: Path) -> Serving:
    services: dict[str, Any] = {
        "app_loader": DirectoryAppLoader(home / "agents"),
        "artifact_service": artifact_service_from_uri((home / "agents/.greenroom/artifacts").as_uri()),
        "session_service": SqliteSessionService(str(home / "agents/.greenroom/sessions.db")),
    }
    server = await serve(services=services)
    await server.new_session("echo")
    return server


@pytest.fixture(autouse=True)
def nothing_else_changed(home: Path) -> Iterator[None]:
    before = sorted(_outside(home))
    yield
    assert sorted(_outside(home)) == before
    assert (home / "canary.txt").read_bytes() == CANARY


def _outside(home: Path) -> list[Path]:
    own = home / "agents/.greenroom"
    return [path for path in home.rglob("*") if own not in path.parents and "__pycache__" not in path.parts]


def leaks(data: bytes) -> bool:
    return CANARY in data or b"root:x:0" in data or b"PATH=" in data


@pytest.mark.parametrize(("endpoint", "path"), [one for one in each() if "{" in one.values[1]])
async def test_a_path_leads_to_no_file(server: Serving, endpoint: Endpoint, path: str) -> None:
    """Over bare connections: a client takes dots out of the address itself."""
    body = body_for(endpoint)
    sent = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"} if sent else {}
    connection = await server.connect()
    for name in re.findall(r"{([\w:]+)}", path):
        for value in (*(quote(one, safe="") for one in TRAVERSALS), *RAW, *(quote(one) for one in TRAVERSALS)):
            address = filled(path, {**VALUES, name: value})
            if connection.writer.is_closing():
                connection = await server.connect()
            await connection.request(endpoint.method, address, headers, sent)
            status, answer = await connection.answer()
            assert status < 500 or status == status_of(endpoint), (address, answer)
            assert not leaks(answer), address


@pytest.mark.parametrize("filename", TRAVERSALS)
async def test_an_artifacts_name_leads_to_no_other_file(server: Serving, home: Path, filename: str) -> None:
    """An accepted artifact is kept under that name, for this session only."""
    at = "/apps/echo/users/ann/sessions/s-1/artifacts"
    saved = await server.client.post(at, json={"filename": filename, "artifact": {"text": "mine"}})
    assert saved.status_code in (200, 400, 422), saved.text
    own = home / "agents/.greenroom/artifacts"
    assert all(path.is_relative_to(own.resolve()) for path in map(Path.resolve, own.rglob("*")))
    loaded = await server.client.get(f"{at}/{quote(filename, safe='')}")
    assert not leaks(loaded.content)
    if saved.status_code == 200:
        assert loaded.json() == {"text": "mine"}
        assert (await server.client.get(at)).json() == [filename]
    elif filename not in (".", ".."):  # which a client takes out of the address itself
        assert loaded.status_code in (400, 404, 422)
    other = await server.new_session("echo", user="bob")
    assert (await server.client.get(f"{other}/artifacts")).json() == []


@pytest.mark.parametrize("name", TRAVERSALS)
async def test_names_in_a_body_lead_to_no_file(server: Serving, name: str) -> None:
    message = {"parts": [{"text": "hi"}]}
    ids = {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": message}
    for field in ("appName", "userId", "sessionId", "invocationId"):
        reply = await server.client.post("/run", json={**ids, field: name})
        assert reply.status_code in (404, 422), (field, reply.text)
        assert not leaks(reply.content)
    reply = await server.client.post("/apps/echo/users/ann/sessions", json={"sessionId": name})
    assert reply.status_code in (200, 400, 422), reply.text
    if reply.status_code == 200:
        assert reply.json()["id"] == name
    for uri in (name, f"file://{name}", "file:///etc/passwd", "artifact://../../canary.txt"):
        part = {"fileData": {"fileUri": uri, "mimeType": "text/plain"}}
        reply = await server.client.post("/run", json={**ids, "newMessage": {"parts": [part]}})
        assert not leaks(reply.content)
        assert reply.status_code < 500
