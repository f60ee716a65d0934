"""Editing agents' YAML files over HTTP: drafts, checks before anything is replaced, and the limits of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.server_start import secured_settings
from greenroom.errors import CallerError
from greenroom.server.settings import ServeSettings
from tests.server.conftest import Serve
from tests.server.security.conftest import keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Serving

__all__ = ["keys"]

ROOT = """\
name: shop
model: gemini-2.5-flash
instruction: Sell.
tools:
  - name: shop.tools.price
sub_agents:
  - config_path: helper.yaml
"""
HELPER = "name: helper\nmodel: gemini-2.5-flash\ninstruction: Help.\n"
TOOLS = "def price(item: str) -> int:\n    return 3\n"
FILES = "/dev/apps/shop/builder"


@pytest.fixture
def agents_dir(tmp_path: Path) -> Path:
    shop = tmp_path / "agents" / "shop"
    shop.mkdir(parents=True)
    for name, text in (("root_agent.yaml", ROOT), ("helper.yaml", HELPER), ("tools.py", TOOLS)):
        (shop / name).write_text(text)
    return shop.parent


@pytest.fixture
async def server(serve: Serve, agents_dir: Path) -> Serving:
    return await serve(services={"app_loader": DirectoryAppLoader(agents_dir)}, edit=True)


async def save(server: Serving, *, tmp: bool = False, app: str = "shop", **files: str) -> httpx.Response:
    """files: by name without `.yaml`; two underscores for a slash."""
    names = {name: f"{app}/{name.replace('__', '/')}.yaml" for name in files}
    form = [("files", (names[name], text.encode(), "application/x-yaml")) for name, text in files.items()]
    return await server.client.post(f"/dev/apps/{app}/builder/save", params={"tmp": tmp} if tmp else {}, files=form)


async def read(server: Serving, name: str = "root_agent", *, tmp: bool = False) -> str:
    reply = await server.client.get(FILES, params={"file_path": f"{name}.yaml", "tmp": tmp})
    assert reply.status_code == 200, reply.text
    return reply.text


async def test_files_are_listed_and_read(server: Serving, agents_dir: Path) -> None:
    (agents_dir / "shop" / ".hidden.yaml").write_text("name: x")
    assert (await server.client.get(FILES + "/files")).json() == {"names": ["helper.yaml", "root_agent.yaml"]}
    reply = await server.client.get(FILES)
    assert (reply.text, reply.headers["content-type"]) == (ROOT, "application/x-yaml")
    assert await read(server, "missing") == ""
    schema = (await server.client.get("/dev/builder/schema")).json()
    assert {"LlmAgentConfig", "LoopAgentConfig"} <= schema["$defs"].keys()


async def test_a_draft_is_apart_until_it_is_published(server: Serving, agents_dir: Path) -> None:
    draft = ROOT.replace("Sell.", "Sell apples.")
    assert (await save(server, tmp=True, root_agent=draft)).json() is True
    assert (await read(server), await read(server, tmp=True)) == (ROOT, draft)
    assert await read(server, "helper", tmp=True) == HELPER
    changed = HELPER.replace("Help.", "Help well.")
    assert (await save(server, helper=changed)).json() is True
    assert (await read(server), await read(server, "helper")) == (draft, changed)
    await save(server, tmp=True, root_agent=ROOT)
    assert (await server.client.post(f"{FILES}/cancel")).json() is True
    assert await read(server, tmp=True) == draft
    assert sorted(path.name for path in (agents_dir / "shop").iterdir() if path.is_file()) == [
        "helper.yaml", "root_agent.yaml", "tools.py",
    ]  # fmt: skip


async def test_an_app_is_made_and_answers_at_once(server: Serving, agents_dir: Path) -> None:
    reply = await save(server, app="bank", root_agent=HELPER.replace("helper", "bank"))
    assert (reply.status_code, reply.json()) == (200, True), reply.text
    assert "bank" in (await server.client.get("/list-apps")).json()
    older = [("files", ("till/root_agent.yaml", HELPER.encode(), "application/x-yaml"))]
    assert (await server.client.post("/builder/save", files=older)).json() is True
    assert (agents_dir / "till" / "root_agent.yaml").read_text() == HELPER


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"root_agent": "name: [shop"}, "root_agent.yaml:"),
        ({"root_agent": ROOT.replace("model:", "modle:")}, "root_agent.yaml:2: modle"),
        ({"root_agent": ROOT.replace("shop.tools.price", "os.system")}, "root_agent.yaml:5"),
        ({"root_agent": ROOT.replace("helper.yaml", "../other/root_agent.yaml")}, "leads out"),
        ({"root_agent": ROOT + "  - config_path: none.yaml\n"}, "none.yaml"),
        ({"root_agent": ROOT, "helper": "name: 5 5"}, "helper.yaml:1"),
        ({"root_agent": ROOT.replace("tools.price", "tools.cost")}, "cost"),
    ],
)
async def test_nothing_is_written_if_the_agents_can_not_be_built(server: Serving, files: Any, where: str) -> None:
    reply = await save(server, **files)
    assert (reply.status_code, where in reply.json()["detail"]) == (400, True), reply.text
    assert (await read(server), await read(server, "helper")) == (ROOT, HELPER)


async def test_arguments_of_tools_are_refused_as_by_adk(server: Serving) -> None:
    text = ROOT.replace("- name: shop.tools.price", "- name: shop.tools.price\n    args: {item: x}")
    reply = await save(server, root_agent=text)
    assert (reply.status_code, "args" in reply.json()["detail"]) == (400, True), reply.text
    assert await read(server) == ROOT


@pytest.mark.parametrize(
    "name", ["../x.yaml", "a/../../x.yaml", ".env.yaml", ".git/x.yaml", "agent.py", "/etc/x.yaml", "a\\x.yaml", ""]
)
async def test_other_files_are_out_of_reach(server: Serving, agents_dir: Path, name: str) -> None:
    before = sorted(agents_dir.parent.rglob("*"))
    form = [("files", (f"shop/{name}", b"name: x\n", "application/x-yaml"))]
    for tmp in ("true", "false"):
        reply = await server.client.post(f"{FILES}/save?tmp={tmp}", files=form)
        assert reply.status_code in (400, 422), reply.text
    assert (await server.client.get(FILES, params={"file_path": name or ".yaml"})).status_code == 400
    assert sorted(agents_dir.parent.rglob("*")) == before


async def test_links_do_not_lead_out(server: Serving, agents_dir: Path) -> None:
    secret = agents_dir.parent / "secret.yaml"
    secret.write_text("name: secret\n")
    (agents_dir / "shop" / "link.yaml").symlink_to(secret)
    (agents_dir / "shop" / "up").symlink_to(agents_dir.parent)
    for name in ("link", "up__secret"):
        reply = await server.client.get(FILES, params={"file_path": f"{name.replace('__', '/')}.yaml"})
        assert reply.status_code == 400
        given: Any = {name: "name: x\n"}
        assert (await save(server, **given)).status_code == 400
    assert secret.read_text() == "name: secret\n"


@pytest.mark.parametrize("app", ["..", "a-b", "1x", "%2e%2e", "shop%2F.."])
async def test_apps_have_names(server: Serving, agents_dir: Path, app: str) -> None:
    form = [("files", ("root_agent.yaml", b"name: x\n", "application/x-yaml"))]
    reply = await server.client.post(f"/dev/apps/{app}/builder/save", files=form)
    assert reply.status_code in (400, 404, 405, 422), reply.text
    assert (await server.client.get("/list-apps")).json() == ["shop"]


@pytest.mark.parametrize("body", [b"", b"x" * 10, b"--b\r\n\r\n--b--"])
async def test_other_bodies_are_refused(server: Serving, body: bytes) -> None:
    for kind in ("multipart/form-data; boundary=b", "text/plain", "multipart/form-data"):
        reply = await server.client.post(f"{FILES}/save", content=body, headers={"content-type": kind})
        assert (reply.status_code, "no files" in reply.json()["detail"]) == (422, True), reply.text
    form = [("files", ("shop/root_agent.yaml", b"#" * 2_000_001, "application/x-yaml"))]
    assert (await server.client.post(f"{FILES}/save", files=form)).status_code == 413


async def test_only_who_manages_edits(serve: Serve, agents_dir: Path, keys: Keys) -> None:
    server = await serve(services={"app_loader": DirectoryAppLoader(agents_dir)}, edit=True, auth=keys.auth)
    form = [("files", ("shop/root_agent.yaml", ROOT.encode(), "application/x-yaml"))]
    for scopes, status in ((("run", "read", "debug"), 403), (("read", "manage"), 200)):
        headers = bearer(keys("ann", *scopes))
        assert (await server.client.get(FILES, headers=headers)).status_code == status
        assert (await server.client.get(FILES + "/files", headers=headers)).status_code == status
        assert (await server.client.post(f"{FILES}/save", files=form, headers=headers)).status_code == status
    other = bearer(keys("bob", "manage", "read", apps=["bank"]))
    assert (await server.client.post(f"{FILES}/save", files=form, headers=other)).status_code == 403
    assert (await server.client.post("/builder/save", files=form, headers=other)).status_code == 403


async def test_agents_in_code_have_no_files(serve: Serve) -> None:
    server = await serve(edit=True)
    reply = await server.client.get("/dev/apps/echo/builder/files")
    assert (reply.status_code, reply.json()["code"]) == (501, "NotOffered")


def test_everybody_may_not_edit_from_other_machines(tmp_path: Path) -> None:
    settings = ServeSettings(edit=True, allow_anonymous=True)
    with pytest.raises(CallerError, match="--edit"):
        secured_settings(tmp_path, settings, is_loopback=False)
