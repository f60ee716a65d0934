"""Lists of apps, the server's own replies, and its web page."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import greenroom
from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.apps.app import App
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import AppLoader, StaticAppLoader
from greenroom.errors import AppLoadError
from greenroom.invocation.context import InvocationContext
from greenroom.records.event import Event
from tests.file_system_calls import file_system_calls
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving


class Silent(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        for event in ():
            yield event


class OneBroken(AppLoader):
    """The app `broken` fails to load; the others are static."""

    def __init__(self, *agents: BaseAgent) -> None:
        self._others = StaticAppLoader(agents)

    def list_apps(self) -> list[str]:
        return sorted([*self._others.list_apps(), "broken"])

    def load(self, app_name: str) -> App:
        if app_name == "broken":
            raise AppLoadError("broken", "SyntaxError: invalid syntax (broken/agent.py:3)")
        return self._others.load(app_name)


async def test_health_and_version(server: Serving) -> None:
    for path in ("/health", "/livez"):
        assert (await server.client.get(path)).json() == {"status": "ok"}
    assert (await server.client.get("/version")).json() == {
        "version": greenroom.__version__,
        "language": "python",
        "language_version": platform.python_version(),
    }


@pytest.mark.parametrize("query", ["", "?relative_path=./", "?detailed=false", "?detailed=0"])
async def test_names_are_listed_in_order(serve: Serve, query: str) -> None:
    server = await serve(echo("zebra"), echo("ant"))
    assert (await server.client.get(f"/list-apps{query}")).json() == ["ant", "zebra"]


@pytest.mark.parametrize("yes", ["true", "1", "True"])
async def test_a_broken_app_is_listed_with_its_error(serve: Serve, yes: str) -> None:
    agent = echo()
    agent.description = "Says it again"
    server = await serve(services={"app_loader": OneBroken(agent)})
    assert (await server.client.get("/list-apps")).json() == ["broken", "echo"]
    error = "App 'broken' can't be loaded: SyntaxError: invalid syntax (broken/agent.py:3)"
    common = {"language": "python", "isComputerUse": False}
    assert (await server.client.get(f"/list-apps?detailed={yes}")).json() == {
        "apps": [
            {"name": "broken", "rootAgentName": "", "description": "", "error": error, **common},
            {"name": "echo", "rootAgentName": "echo", "description": "Says it again", **common},
        ]
    }
    for reply in (
        await server.client.get("/apps/broken/app-info"),
        await server.run("broken"),
        await server.client.post("/run_sse", json={"appName": "broken", "userId": "u", "sessionId": "s"}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (500, "AppLoadError")
        assert reply.json()["detail"] == error


async def test_the_list_says_what_models_lack(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    child = LlmAgent(name="child", model="openai/gpt-5")
    server = await serve(LlmAgent(name="root", model="openai/gpt-5", sub_agents=[child]), echo())
    first, second = (await server.client.get("/list-apps?detailed=true")).json()["apps"]
    assert (first["name"], "missing" in first) == ("echo", False)
    (fault,) = second["missing"]
    assert "OPENAI_API_KEY" in fault
    assert "error" not in second


async def test_detailed_must_be_a_truth_value(server: Serving) -> None:
    reply = await server.client.get("/list-apps?detailed=perhaps")
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == ["query", "detailed"]


async def test_app_info_has_agents_and_tools(serve: Serve) -> None:
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    child = scripted("child", ["hi"])
    root = scripted("root", ["hi"], tools=[add])
    root.instruction = "Be kind."
    root.sub_agents = [child]
    root.__post_init__()
    server = await serve(root)
    info = (await server.client.get("/apps/root/app-info")).json()
    assert (info["name"], info["rootAgentName"], info["language"]) == ("root", "root", "python")
    assert set(info["agents"]) == {"root", "child"}
    described = info["agents"]["root"]
    assert (described["instruction"], described["sub_agents"]) == ("Be kind.", ["child"])
    ((declaration,),) = (tool["functionDeclarations"] for tool in described["tools"])
    assert (declaration["name"], declaration["description"]) == ("add", "Add two numbers.")
    assert set(declaration["parametersJsonSchema"]["properties"]) == {"a", "b"}


async def test_app_info_describes_llm_agents_and_names_the_others(serve: Serve) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    def less(a: int) -> int:
        """Take away."""
        return a

    def made_anew(_: object) -> str:
        return "Be quick."

    child = scripted("child", ["hi"])
    child.instruction = made_anew
    root = scripted("root", ["hi"], tools=[add, less])
    root.description = "Counts"
    root.instruction = "Be kind."
    root.sub_agents = [SequentialAgent(name="line", sub_agents=[child])]
    root.__post_init__()
    server = await serve(root)
    info = (await server.client.get("/apps/root/app-info")).json()
    assert set(info) == {"name", "rootAgentName", "description", "language", "isComputerUse", "agents"}
    assert (info["description"], info["isComputerUse"]) == ("Counts", False)
    assert set(info["agents"]) == {"root", "child"}
    shown = info["agents"]["root"]
    assert set(shown) == {"name", "description", "instruction", "tools", "sub_agents"}
    assert (shown["name"], shown["description"], shown["instruction"]) == ("root", "Counts", "Be kind.")
    assert [[one["name"] for one in tool["functionDeclarations"]] for tool in shown["tools"]] == [["add"], ["less"]]
    assert shown["sub_agents"] == ["line"]
    instruction = info["agents"]["child"]["instruction"]
    assert "made_anew" in instruction
    assert "0x" not in instruction


async def test_an_app_says_what_it_is_written_in(serve: Serve, tmp_path: Path) -> None:
    for name, file, text in (
        ("plain", "root_agent.yaml", "name: plain\ninstruction: Be kind\n"),
        ("coded", "agent.py", "from greenroom import LlmAgent\n\nroot_agent = LlmAgent(name='coded')\n"),
        ("spoilt", "agent.py", "import no_such_module\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    server = await serve(services={"app_loader": DirectoryAppLoader(tmp_path)})
    written_in = {"plain": "yaml", "coded": "python"}
    for name, language in written_in.items():
        assert (await server.client.get(f"/apps/{name}/app-info")).json()["language"] == language
    listed = (await server.client.get("/list-apps?detailed=true")).json()["apps"]
    assert {app["name"]: app["language"] for app in listed} == {**written_in, "spoilt": "python"}
    for reply in (await server.client.get("/apps/spoilt/app-info"), await server.run("spoilt")):
        assert (reply.status_code, reply.json()["code"]) == (500, "AppLoadError")


async def test_a_loader_that_breaks_is_answered_for(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    class Breaks(StaticAppLoader):
        def load(self, app_name: str) -> App:
            raise RuntimeError("the path /home/secret")

    server = await serve(services={"app_loader": Breaks([echo()])})
    reply = await server.client.get("/apps/echo/app-info")
    assert (reply.status_code, reply.headers["content-type"]) == (500, "application/problem+json")
    assert reply.json() == {
        "type": "about:blank", "title": "Internal Server Error", "status": 500, "detail": "Internal Server Error",
    }  # fmt: skip
    assert "/home/secret" in caplog.text


async def test_app_info_needs_a_known_app_with_an_llm_agent(serve: Serve) -> None:
    server = await serve(Silent(name="silent"))
    assert (await server.client.get("/apps/nope/app-info")).status_code == 404
    refused = await server.client.get("/apps/silent/app-info")
    assert (refused.status_code, refused.json()["detail"]) == (400, "Root agent is not an LlmAgent")
    (listed,) = (await server.client.get("/list-apps?detailed=true")).json()["apps"]
    assert listed["rootAgentName"] == "silent"


async def test_the_root_leads_to_the_web_page(server: Serving) -> None:
    for path in ("/", "/dev-ui", "/?app=echo"):
        reply = await server.client.get(path)
        assert (reply.status_code, reply.headers["location"]) == (307, "/dev-ui/")


_AGENT = """
from greenroom import LlmAgent
root_agent = LlmAgent(name="agent", model="scripted")
"""


@pytest.mark.parametrize("count", [1, 40])
async def test_creating_a_session_reads_no_folder(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    loader = _loader_of_folders(tmp_path, count)
    server = await serve(services={"app_loader": loader})
    with file_system_calls(monkeypatch) as calls:
        assert (await server.client.post("/apps/app_0/users/ann/sessions")).status_code == 200
        assert (await server.client.post("/apps/app_0/users/ann/sessions/s-1")).status_code == 200
    assert calls == []


async def test_an_unknown_app_is_looked_for_off_the_event_loop(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = _loader_of_folders(tmp_path, 40)
    server = await serve(services={"app_loader": loader})
    with file_system_calls(monkeypatch) as calls:
        reply = await server.client.post("/apps/nowhere/users/ann/sessions")
    assert (reply.status_code, "app_39" in reply.json()["detail"]) == (404, True)
    assert [(call.name, call.is_on_this_thread) for call in calls if "nowhere" in call.path] == [("os.stat", False)]
    assert not [call for call in calls if call.is_on_this_thread]

    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "agent.py").write_text(_AGENT)
    with file_system_calls(monkeypatch) as calls:
        assert (await server.client.post("/apps/nowhere/users/ann/sessions")).status_code == 200
        assert "nowhere" in (await server.client.get("/list-apps")).json()
    assert calls
    assert not [call for call in calls if call.is_on_this_thread]


def _loader_of_folders(folder: Path, count: int) -> DirectoryAppLoader:
    for number in range(count):
        (folder / f"app_{number}").mkdir()
        (folder / f"app_{number}" / "agent.py").write_text(_AGENT)
    return DirectoryAppLoader(folder)
