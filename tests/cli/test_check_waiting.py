"""`greenroom check --waiting`: a database with waiting runs, and the apps before and after a change."""

from __future__ import annotations

import asyncio
import sqlite3
import zipfile
from pathlib import Path

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, RunStatus
from greenroom.runs.engine import run_store_beside
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.sessions.sqlite import SqliteSessionService
from tests.cli.conftest import Cli
from tests.cli.test_serve import served
from tests.durability.engines import finish

_CLERK = '''
from greenroom import App, FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

def {tool}(to: str, {amount}: str) -> dict:
    """Pays."""
    raise AssertionError("executed")

model = model_of(call("pay", "c-1", to="Roof", amount="7"), "done")
agent = LlmAgent(name="clerk", model=model, tools=[FunctionTool({tool}, require_confirmation=True)])
app = App(name="{app}", root_agent=agent, on_version_change="refuse")
'''

_GRAPH = """
from greenroom import LongRunningFunctionTool, RequestInput, Workflow

def check(node_input) -> str:
    return "checked"

def log(node_input) -> str:
    raise AssertionError("executed")

def ask(node_input):
    return RequestInput(message="Sure?")

root_agent = Workflow(name="flow", edges=[("START", {edges})])
"""

_BEFORE = {
    "equal": _CLERK.format(app="equal", tool="pay", amount="amount"),
    "renamed": _CLERK.format(app="renamed", tool="pay", amount="amount"),
    "arguments": _CLERK.format(app="arguments", tool="pay", amount="amount"),
    "graph": _GRAPH.format(edges="check, ask"),
    "same": _GRAPH.format(edges="check, ask"),
}
_AFTER = {
    "equal": _BEFORE["equal"] + "# a comment\n",
    "renamed": _CLERK.format(app="renamed", tool="transfer", amount="amount"),
    "arguments": _CLERK.format(app="arguments", tool="pay", amount="euros"),
    "graph": _GRAPH.format(edges="check, log, ask"),
    "same": _BEFORE["same"],
    "broken": "raise RuntimeError('never loaded: no run waits')",
}


def write(folder: Path, apps: dict[str, str]) -> Path:
    for name, text in apps.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "agent.py").write_text(text)
    return folder


async def start_waiting(folder: Path, database: Path) -> dict[str, str]:
    """Leaves a waiting run of each app. Returns their ids."""
    sessions = SqliteSessionService(database)
    runs = run_store_beside(sessions)
    engine = InProcessRunEngine(
        apps=DirectoryAppLoader(folder),
        run_store=runs,
        session_service=sessions,
        auto_create_session=True,
    )
    ids: dict[str, str] = {}
    for name in sorted(_BEFORE):
        message = Content(role="user", parts=[Part(text="go")])
        run = await finish(
            engine, AgentRunRequest(app_name=name, user_id="ada", session_id=f"s-{name}", new_message=message)
        )
        assert run.status is RunStatus.WAITING
        ids[name] = run.id
    await engine.close()
    await sessions.close()
    return ids


def dump(database: Path) -> list[str]:
    with sqlite3.connect(database) as connection:
        return list(connection.iterdump())


def test_the_first_difference_of_each_waiting_run_is_shown(cli: Cli, tmp_path: Path) -> None:
    before = write(tmp_path / "before", _BEFORE)
    after = write(tmp_path / "after", _AFTER)
    database = tmp_path / "chats.db"
    ids = asyncio.run(start_waiting(before, database))
    stored = dump(database)
    store = f"sqlite:///{database}"

    done = cli("check", str(after), "--waiting", "--session-service", store)
    lines = done.stdout.splitlines()[1:]
    shown = {line.split()[0]: " ".join(line.split()) for line in lines}
    assert {name: text.split()[1] for name, text in shown.items()} == ids
    assert shown["equal"].endswith("approval of pay refuse equal")
    assert shown["same"].endswith("an input continue same version")
    assert shown["renamed"].endswith(
        "refuse different at event 2: agent 'clerk' calls pay(amount, to); now it has no tool of this name"
    )
    assert shown["arguments"].endswith("agent 'clerk' calls pay(amount, to); now pay requires 'euros'")
    assert shown["graph"].endswith("calls adk_request_input; now node 'flow@1/log@1' runs")
    assert done.stderr == "waiting: 5; different: 3\n"
    assert done.returncode == 1
    assert dump(database) == stored

    unchanged = cli("check", str(before), "--waiting", "--session-service", store)
    assert (unchanged.returncode, unchanged.stderr) == (0, "waiting: 5; different: 0\n")


def test_a_server_compares_its_waiting_runs(cli: Cli, tmp_path: Path) -> None:
    database = tmp_path / "chats.db"
    ids = asyncio.run(start_waiting(write(tmp_path / "before", _BEFORE), database))
    after = write(tmp_path / "after", {**_AFTER, "graph": "raise RuntimeError('half-written')"})
    cli.environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"  # the apps use this package
    with served(cli, str(after), "--session-service", f"sqlite:///{database}") as (url, _, _):
        done = cli("check", "--waiting", "--url", url)
        one = cli("check", "--waiting", "--url", url, "--limit", "1")
        refused = [cli("check", str(after), "--waiting", "--url", url), cli("check", "--url", url), cli("check")]
    shown = {line.split()[0]: " ".join(line.split()) for line in done.stdout.splitlines()[1:]}
    assert {name: text.split()[1] for name, text in shown.items()} == ids
    assert shown["equal"].endswith("approval of pay refuse equal")
    assert "agent 'clerk' calls pay(amount, to); now it has no tool of this name" in shown["renamed"]
    assert "RuntimeError: half-written" in shown["graph"]
    assert (done.returncode, done.stderr) == (1, "waiting: 5; different: 3\n")
    assert one.stderr.startswith("waiting: 1;")
    assert [(each.returncode, each.stdout) for each in refused] == [(1, "")] * 3
    assert "PATH can't be combined with a server" in refused[0].stderr
    assert "belong to --waiting" in refused[1].stderr
    assert "Give the PATH of the apps" in refused[2].stderr


def test_apps_in_archives_are_compared(cli: Cli, tmp_path: Path) -> None:
    database = tmp_path / "chats.db"
    asyncio.run(start_waiting(write(tmp_path / "before", _BEFORE), database))
    (tmp_path / "dist").mkdir()
    with zipfile.ZipFile(tmp_path / "dist" / "renamed-2.zip", "w") as archive:
        archive.writestr("renamed/__init__.py", "")
        archive.writestr("renamed/agent.py", _AFTER["renamed"])
    done = cli("check", str(tmp_path / "dist"), "--waiting", "--session-service", f"sqlite:///{database}")
    assert "different at event 2: agent 'clerk' calls pay(amount, to)" in done.stdout
    assert done.stderr == "waiting: 1; different: 1\n"


def test_an_app_that_can_not_be_loaded_is_a_difference(cli: Cli, tmp_path: Path) -> None:
    folder = write(tmp_path / "apps", {"equal": _BEFORE["equal"], **{name: _BEFORE[name] for name in _BEFORE}})
    database = tmp_path / "chats.db"
    asyncio.run(start_waiting(folder, database))
    write(folder, {"equal": "raise RuntimeError('half-written')"})
    done = cli("check", str(folder), "--waiting", "--session-service", f"sqlite:///{database}")
    assert done.returncode == 1
    assert "RuntimeError: half-written" in " ".join(done.stdout.split())


def test_a_database_without_waiting_runs_passes(cli: Cli) -> None:
    cli("run", "agents", "hello", "--session-service", "sqlite:///chats.db")
    done = cli("check", "agents", "--waiting", "--session-service", "sqlite:///chats.db")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No run waits.\n")


def test_an_older_database_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("PRAGMA user_version = 1")
    done = cli("check", "agents", "--waiting", "--session-service", f"sqlite:///{tmp_path / 'old.db'}")
    assert done.returncode != 0
    assert "has schema 1" in done.stderr


def test_a_store_without_waiting_is_refused(cli: Cli) -> None:
    assert "belong to --waiting" in cli("check", "agents", "--session-service", "sqlite:///chats.db").stderr
