from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.errors import AgentConfigError, AppLoadError, AppNotFound
from tests.apps.conftest import AgentsDir
from tests.file_system_calls import file_system_calls


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def description(loader: DirectoryAppLoader, app: str) -> str:
    return loader.load(app).root_agent.description


def reason(loader: DirectoryAppLoader, app: str) -> str:
    with pytest.raises(AppLoadError) as caught:
        loader.load(app)
    assert caught.value.app_name == app
    return caught.value.reason


# finding apps


def test_sub_folders_with_agent_modules_are_apps(agents_dir: AgentsDir) -> None:
    agents_dir.agent("weather")
    agents_dir.agent("bistro")
    for other in ("_private", ".hidden", "__pycache__", "not-a-name"):
        agents_dir.agent(other)
    agents_dir.write("notes/readme.txt", "no app")
    agents_dir.write("agent_file.py", "")
    assert DirectoryAppLoader(agents_dir.path).list_apps() == ["bistro", "weather"]


def test_a_name_may_begin_with_a_digit(agents_dir: AgentsDir) -> None:
    agents_dir.write("1_basic/prompts.py", "GREETING = 'Greet.'")
    agents_dir.write("1_basic/agent.py", """
        from greenroom import LlmAgent
        from .prompts import GREETING
        root_agent = LlmAgent(name="greeter", instruction=GREETING)
    """)  # fmt: skip
    agents_dir.write("2nd/3rd/__init__.py", "from . import agent")
    agents_dir.write("2nd/3rd/agent.py", "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='third')")
    loader = DirectoryAppLoader(agents_dir.path)
    assert loader.list_apps() == ["1_basic", "2nd.3rd"]
    assert loader.load("1_basic").name == "1_basic"
    assert loader.load("2nd.3rd").root_agent.name == "third"
    assert DirectoryAppLoader(agents_dir.path / "1_basic").list_apps() == ["1_basic"]


def test_a_package_is_an_app_if_it_exports_an_agent(agents_dir: AgentsDir) -> None:
    agents_dir.write("assigned/__init__.py", "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='a')")
    agents_dir.write("imported/__init__.py", "from .main import bot as root_agent")
    agents_dir.write("imported/main.py", "from greenroom import LlmAgent\nbot = LlmAgent(name='b')")
    agents_dir.write("nested/agent/__init__.py", "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='c')")
    agents_dir.write("library/__init__.py", '"""The app and its root_agent use this."""')
    loader = DirectoryAppLoader(agents_dir.path)
    assert loader.list_apps() == ["assigned", "imported", "nested"]
    assert [loader.load(name).root_agent.name for name in loader.list_apps()] == ["a", "b", "c"]


def test_a_workflow_is_a_root_agent(agents_dir: AgentsDir) -> None:
    """1.16.1."""
    text = "from greenroom import Workflow\nroot_agent = Workflow(name='desk', edges=[('START', print)])"
    for module in ("one/agent.py", "two/__init__.py"):
        agents_dir.write(module, text)
    loader = DirectoryAppLoader(agents_dir.path)
    assert [loader.load(name).root_agent.name for name in loader.list_apps()] == ["desk", "desk"]


def test_a_folder_with_an_agent_module_is_one_app(agents_dir: AgentsDir) -> None:
    agents_dir.agent("weather")
    agents_dir.agent("bistro")
    loader = DirectoryAppLoader(agents_dir.path / "weather")
    assert loader.list_apps() == ["weather"]
    assert loader.load("weather").name == "weather"
    with pytest.raises(AppNotFound):
        loader.load("bistro")


def test_a_single_app_needs_a_name(agents_dir: AgentsDir) -> None:
    agents_dir.agent("my-agent")
    with pytest.raises(AgentConfigError, match="rename it"):
        DirectoryAppLoader(agents_dir.path / "my-agent")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentConfigError, match="no folder"):
        DirectoryAppLoader(tmp_path / "nowhere")


def test_new_apps_are_found_without_restart(agents_dir: AgentsDir) -> None:
    loader = DirectoryAppLoader(agents_dir.path)
    assert loader.list_apps() == []
    agents_dir.agent("weather")
    assert loader.list_apps() == ["weather"]
    assert loader.load("weather").name == "weather"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../outside", "weather/../weather", "/etc", "weather\x00", "Weather", "\n"]
)
def test_other_names_are_not_found(agents_dir: AgentsDir, name: str) -> None:
    agents_dir.agent("weather")
    agents_dir.write("../outside/agent.py", "raise RuntimeError('must not be read')")
    with pytest.raises(AppNotFound, match="Known apps: weather"):
        DirectoryAppLoader(agents_dir.path).load(name)


# what an app exports


def test_the_package_comes_before_its_agent_module(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/__init__.py", "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='package')")
    agents_dir.write("shop/agent.py", "raise RuntimeError('not needed')")
    assert DirectoryAppLoader(agents_dir.path).load("shop").root_agent.name == "package"


def test_an_app_comes_before_an_agent_and_takes_the_folders_name(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/agent.py",
        """
        from greenroom import App, LlmAgent
        root_agent = LlmAgent(name="second")
        app = App(name="other", root_agent=LlmAgent(name="first"))
        """,
    )
    app = DirectoryAppLoader(agents_dir.path).load("shop")
    assert (app.name, app.root_agent.name) == ("shop", "first")


def test_an_app_that_is_something_else_does_not_hide_the_agent(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/__init__.py", "from . import app")
    agents_dir.write("shop/app.py", "")
    agents_dir.agent("shop")
    assert DirectoryAppLoader(agents_dir.path).load("shop").root_agent.name == "shop"


def test_a_loaded_app_stays_the_same_object(agents_dir: AgentsDir) -> None:
    agents_dir.agent("shop")
    loader = DirectoryAppLoader(agents_dir.path)
    app = loader.load("shop")
    agents_dir.write("shop/agent.py", "broken(")
    assert loader.load("shop") is app


# apps are kept apart


SAME_NAMES = {
    "import tools": "tools.name()",
    "import tools as t": "t.name()",
    "from tools import name": "name()",
    "from . import tools": "tools.name()",
    "from .tools import name": "name()",
    "import {app}.tools": "{app}.tools.name()",
    "import {app}.deep.tools": "{app}.deep.tools.name()",
    "import {app}.tools as t": "t.name()",
    "from {app} import tools": "tools.name()",
    "from {app}.tools import name": "name()",
    "import deep.tools": "deep.tools.name()",
    "import json, tools, os.path": "json.loads(json.dumps(tools.name()))",
}


@pytest.mark.parametrize("is_package", [True, False])
@pytest.mark.parametrize("statement", SAME_NAMES)
def test_modules_of_one_name_do_not_collide(agents_dir: AgentsDir, statement: str, is_package: bool) -> None:
    for app in ("bakery", "shop"):
        if is_package:
            agents_dir.write(f"{app}/__init__.py", "from . import agent")
        agents_dir.write(f"{app}/tools.py", f"def name(): return 'tools of {app}'")
        agents_dir.write(f"{app}/deep/tools.py", f"def name(): return 'tools of {app}'")
        line, call = statement.format(app=app), SAME_NAMES[statement].format(app=app)
        agents_dir.write(
            f"{app}/agent.py",
            f"""
            from greenroom import LlmAgent
            {line}
            def later(context):
                {line}
                return {call}
            root_agent = LlmAgent(name="{app}", description={call}, instruction=later)
            """,
        )
    path_before = list(sys.path)
    loader = DirectoryAppLoader(agents_dir.path)
    apps = [loader.load("bakery"), loader.load("shop")]
    assert [app.root_agent.description for app in apps] == ["tools of bakery", "tools of shop"]
    # Imports inside functions happen long after all apps were loaded.
    agents: list[Any] = [app.root_agent for app in apps]
    assert [agent.instruction(None) for agent in agents] == ["tools of bakery", "tools of shop"]
    assert "tools" not in sys.modules
    assert "shop" not in sys.modules
    assert sys.path == path_before
    assert not list(agents_dir.path.rglob("__pycache__"))


def test_an_app_named_like_an_installed_package_reaches_both(agents_dir: AgentsDir) -> None:
    agents_dir.write("rich/helpers.py", "WORD = 'own'")
    agents_dir.write(
        "rich/agent.py",
        """
        from greenroom import LlmAgent
        from rich.text import Text
        from rich.helpers import WORD
        import rich
        root_agent = LlmAgent(name="rich", description=f"{WORD} {Text('installed')} {rich.__name__}")
        """,
    )
    assert description(DirectoryAppLoader(agents_dir.path), "rich") == "own installed rich"


def test_the_standard_library_is_not_hidden_by_a_module_of_an_app(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/logging.py", "WORD = 'own'")
    agents_dir.write(
        "shop/agent.py",
        """
        import logging
        from . import logging as own
        from greenroom import LlmAgent
        root_agent = LlmAgent(name="shop", description=f"{own.WORD} {logging.INFO}")
        """,
    )
    assert description(DirectoryAppLoader(agents_dir.path), "shop") == "own 20"


def test_modules_beside_the_apps_are_shared(agents_dir: AgentsDir) -> None:
    agents_dir.write("shared/database.py", "calls = []")
    for app in ("bakery", "shop"):
        agents_dir.write(
            f"{app}/agent.py",
            f"""
            from greenroom import LlmAgent
            from shared.database import calls
            calls.append("{app}")
            root_agent = LlmAgent(name="{app}", description=" ".join(calls))
            """,
        )
    loader = DirectoryAppLoader(agents_dir.path)
    assert (description(loader, "bakery"), description(loader, "shop")) == ("bakery", "bakery shop")


def test_two_loaders_of_one_folder_have_modules_of_their_own(agents_dir: AgentsDir) -> None:
    agents_dir.agent("shop")
    first, second = (DirectoryAppLoader(agents_dir.path).load("shop") for _ in range(2))
    assert first.root_agent is not second.root_agent


# broken apps

BROKEN = {
    "broken(": "SyntaxError: '(' was never closed (shop/agent.py:1)",
    "\n1 / 0": "ZeroDivisionError: division by zero (shop/agent.py:2)",
    "import sys\nsys.exit(3)": "SystemExit: 3 (shop/agent.py:2)",
    "import pytest\npytest.skip('x', allow_module_level=True)": "Skipped: x (shop/agent.py:2)",
    "import toolz_that_is_missing": ("ModuleNotFoundError: No module named 'toolz_that_is_missing' (shop/agent.py:1)"),
    "from .missing import x": "ModuleNotFoundError: No module named 'shop.missing' (shop/agent.py:1)",
    "from .helper import fail\nfail()": "KeyError: 'gone' (shop/helper.py:2)",
    "agent = 1": "AgentConfigError: neither shop/__init__.py nor shop/agent.py has a root_agent or an app",
    "root_agent = {}": (
        "AgentConfigError: root_agent is of type dict, not an agent; an app with more than an agent is exported as "
        "`app = App(…)`"
    ),
    "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='user')": (
        "AgentConfigError: An agent can't be named 'user': that is the author of the user's messages (shop/agent.py:2)"
    ),
    "from greenroom.errors import MissingExtra\nraise MissingExtra('mcp', 'mcp')": (
        "MissingExtra: mcp is not installed; get it with: pip install 'greenroom[mcp]' (shop/agent.py:2)"
    ),
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_app_is_listed_and_says_what_is_wrong(
    agents_dir: AgentsDir, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    agents_dir.agent("fine")
    agents_dir.write("shop/helper.py", "def fail():\n    raise KeyError('gone')\n")
    agents_dir.write("shop/agent.py", source)
    loader = DirectoryAppLoader(agents_dir.path)
    with caplog.at_level(logging.ERROR, "greenroom.apps"):
        failed = loader.preload()
    assert {name: error.reason for name, error in failed.items()} == {"shop": BROKEN[source]}
    assert failed["shop"].__cause__ is None
    (record,) = caplog.records
    assert record.exc_info is not None
    assert loader.list_apps() == ["fine", "shop"]
    assert loader.load("fine").root_agent.name == "fine"


def test_an_unreadable_package_is_listed(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/__init__.py", "root_agent = (")
    loader = DirectoryAppLoader(agents_dir.path)
    assert loader.list_apps() == ["shop"]
    assert reason(loader, "shop") == "SyntaxError: '(' was never closed (shop/__init__.py:1)"


def test_a_broken_app_is_imported_again_only_after_a_change(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/helper.py", "WORD = 'old'")
    agents_dir.write("shop/agent.py", "import os, helper\nos.environ['TRIES'] += 'I'\nraise OSError(helper.WORD)")
    os.environ["TRIES"] = ""
    clock = Clock()
    loader = DirectoryAppLoader(agents_dir.path, clock=clock)
    for _ in range(3):
        assert reason(loader, "shop") == "OSError: old (shop/agent.py:3)"
        clock.now += 2
    assert os.environ["TRIES"] == "I"

    agents_dir.write("shop/helper.py", "WORD = 'new'")
    assert reason(loader, "shop") == "OSError: new (shop/agent.py:3)"

    agents_dir.agent("shop")
    assert "OSError" in reason(loader, "shop"), "looks at the files at most once a second"
    clock.now += 2
    assert loader.load("shop").root_agent.name == "shop"
    assert os.environ["TRIES"] == "II"


def test_a_broken_module_beside_the_apps_is_imported_again_after_a_change(agents_dir: AgentsDir) -> None:
    agents_dir.write("shared/tool.py", "def make(): raise ValueError('no')")
    agents_dir.write(
        "shop/agent.py",
        """
        from shared.tool import make
        from greenroom import LlmAgent
        root_agent = LlmAgent(name="shop", description=make())
        """,
    )
    clock = Clock()
    loader = DirectoryAppLoader(agents_dir.path, clock=clock)
    assert reason(loader, "shop") == "ValueError: no (shared/tool.py:1)"
    agents_dir.write("shared/tool.py", "def make(): return 'mended'")
    clock.now += 2
    assert description(loader, "shop") == "mended"


def test_an_interrupt_is_not_swallowed(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/agent.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        DirectoryAppLoader(agents_dir.path).load("shop")


# .env


def test_an_env_file_is_loaded_but_the_process_environment_wins(agents_dir: AgentsDir) -> None:
    agents_dir.write("../.env", "FROM_ABOVE=1")
    agents_dir.write(".env", "GREENROOM_TEST_KEY=from the file\nPATH=/nowhere")
    agents_dir.write(
        "shop/agent.py",
        """
        import os
        from greenroom import LlmAgent
        root_agent = LlmAgent(name="shop", description=os.environ["GREENROOM_TEST_KEY"])
        """,
    )
    path = os.environ["PATH"]
    assert description(DirectoryAppLoader(agents_dir.path), "shop") == "from the file"
    assert os.environ["PATH"] == path
    assert "FROM_ABOVE" not in os.environ


def test_env_files_can_be_turned_off(agents_dir: AgentsDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADK_DISABLE_LOAD_DOTENV", "1")
    agents_dir.write(".env", "GREENROOM_TEST_KEY=x")
    agents_dir.agent("shop")
    assert isinstance(DirectoryAppLoader(agents_dir.path).load("shop").root_agent, LlmAgent)
    assert "GREENROOM_TEST_KEY" not in os.environ


@pytest.mark.parametrize("count", [1, 1000])
async def test_a_known_app_is_found_without_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    loader = DirectoryAppLoader(_folder_of_apps(tmp_path, count))
    loader.list_apps()

    with file_system_calls(monkeypatch) as calls:
        assert await loader.has_app("app_0")
    assert calls == []

    with file_system_calls(monkeypatch) as calls:
        assert not await loader.has_app("nowhere")
    assert [(call.name, call.is_on_this_thread) for call in calls] == [("os.stat", False)]


def test_preloading_an_app_costs_the_same_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    per_app: list[float] = []
    for count in (5, 50):
        loader = DirectoryAppLoader(_folder_of_apps(tmp_path / f"{count}", count))
        with file_system_calls(monkeypatch) as calls:
            assert loader.preload() == {}
        per_app.append(len(calls) / count)
    few, many = per_app
    assert many <= few


def _folder_of_apps(folder: Path, count: int) -> Path:
    for number in range(count):
        app = folder / f"app_{number}"
        app.mkdir(parents=True)
        (app / "agent.py").write_text("from greenroom import LlmAgent\nroot_agent = LlmAgent(name='agent')\n")
    return folder
