"""Apps in folders of folders: `team/bots/agent.py` is the app `team.bots`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.apps.load_built import BuiltOutputLoader
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.load_yaml import load_agent
from greenroom.errors import AppLoadError, AppNotFound
from tests.apps.conftest import AgentsDir
from tests.apps.test_hot_reload import settle, soon

SAYS = """
from greenroom import LlmAgent
{imports}
root_agent = LlmAgent(name="root", description={words})
"""


def says(agents_dir: AgentsDir, app: str, imports: str, words: str) -> None:
    agents_dir.write(f"{app.replace('.', '/')}/agent.py", SAYS.format(imports=imports, words=words))


def description(loader: DirectoryAppLoader, app: str) -> str:
    return loader.load(app).root_agent.description


@pytest.fixture
def loader(agents_dir: AgentsDir) -> Iterator[DirectoryAppLoader]:
    made = DirectoryAppLoader(agents_dir.path)
    yield made
    made.close()


# which folders count


def test_the_folders_on_the_way_are_in_an_apps_name(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    for folder in ("solo", "team/bots", "team/desk/first/line"):
        says(agents_dir, folder.replace("/", "."), "", repr(folder))
    agents_dir.write("team/menu/root_agent.yaml", "name: menu\nmodel: scripted\ninstruction: x\ndescription: from YAML")
    assert loader.list_apps() == ["solo", "team.bots", "team.desk.first.line", "team.menu"]
    for app, expected in (("team.desk.first.line", "team/desk/first/line"), ("team.menu", "from YAML")):
        assert (loader.load(app).name, description(loader, app)) == (app, expected)
    assert (loader.language("team.bots"), loader.language("team.menu")) == ("python", "yaml")
    agents_dir.write("team/bots/README.md", "# Bots")
    assert (loader.readme("team.bots"), loader.readme("team.menu")) == ("# Bots", None)


def test_what_lies_in_an_apps_folder_belongs_to_it(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    for folder in ("shop", "shop/tools/helper", "team/desk", "team/desk/sub"):
        agents_dir.write(f"{folder}/agent.py", "")
    agents_dir.write("package/__init__.py", "from .main import root_agent")
    agents_dir.write("package/inner/agent.py", "")
    assert loader.list_apps() == ["package", "shop", "team.desk"]
    with pytest.raises(AppNotFound):
        loader.load("shop.tools.helper")


def test_not_all_folders_are_looked_into(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    for folder in (
        "team/.hidden", "team/_private", "team/__pycache__", "team/no-name", "tmp/draft", "team/tmp/draft",
        "node_modules/thing", "venv/lib/thing", "no-name/thing", ".hidden/thing", "_private/thing",
    ):  # fmt: skip
        agents_dir.write(f"{folder}/agent.py", "1 / 0")
    agents_dir.write("venv/pyvenv.cfg", "")
    assert loader.list_apps() == []


def test_five_folders_is_the_deepest(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write("a/b/c/d/e/agent.py", "")
    agents_dir.write("v/w/x/y/z/z/agent.py", "")
    assert loader.list_apps() == ["a.b.c.d.e"]
    assert DirectoryAppLoader(agents_dir.path, levels=4).list_apps() == []


def test_a_package_below_the_first_level_is_a_library(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write("shared/words/__init__.py", "from .more import *\nroot_agent = 1")
    assert loader.list_apps() == []


def test_links_lead_to_apps_but_no_further(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write("../elsewhere/shop/agent.py", "")
    agents_dir.write("team/desk/agent.py", "")
    team = agents_dir.path / "team"
    (team / "shop").symlink_to(agents_dir.path.parent / "elsewhere" / "shop")
    (team / "elsewhere").symlink_to(agents_dir.path.parent / "elsewhere")
    (team / "again").symlink_to(team)
    (team / "itself").symlink_to(team / "itself")
    (agents_dir.path / "all").symlink_to(agents_dir.path)
    assert loader.list_apps() == ["team.desk", "team.shop"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_hides_its_apps_only(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.agent("shop")
    agents_dir.write("team/desk/agent.py", "")
    (agents_dir.path / "team").chmod(0)
    assert loader.list_apps() == ["shop"]
    (agents_dir.path / "team").chmod(0o700)


@pytest.mark.parametrize(
    "name",
    ["team..desk", ".team.desk", "team.desk.", "team", "team/desk", "team.", ".", "..", "...", "Team.desk",
     "team.desk.agent", "team.desk\n", "..outside", "team.desk/..", "team.\x00desk", "__team.desk"],
)  # fmt: skip
def test_other_names_are_not_found(agents_dir: AgentsDir, loader: DirectoryAppLoader, name: str) -> None:
    agents_dir.write("team/desk/agent.py", "")
    agents_dir.write("README.md", "of the folder")
    agents_dir.write("../outside/agent.py", "raise RuntimeError('must not be read')")
    with pytest.raises(AppNotFound, match=r"Known apps: team\.desk"):
        loader.load(name)
    if name not in ("team", "Team.desk", "team.desk.agent", "__team.desk"):
        for ask in (loader.readme, loader.language):
            with pytest.raises(AppNotFound):
                ask(name)


def test_the_apps_of_a_build_lie_right_in_its_folders(agents_dir: AgentsDir) -> None:
    agents_dir.write("build/lib/shop/agent.py", "")
    with BuiltOutputLoader(source_dir=agents_dir.path) as built:
        assert built.list_apps() == ["shop"]


# names that apps give themselves


@pytest.mark.parametrize(("name", "warned"), [("desk", False), ("other", True)])
def test_an_app_goes_under_the_name_of_its_place(
    agents_dir: AgentsDir, loader: DirectoryAppLoader, caplog: pytest.LogCaptureFixture, name: str, warned: bool
) -> None:
    code = f"from greenroom import App, LlmAgent\napp = App(name={name!r}, root_agent=LlmAgent(name='root'))"
    agents_dir.write("team/desk/agent.py", code)
    assert loader.load("team.desk").name == "team.desk"
    assert ("goes under the folder's name" in caplog.text) == warned


# imports

IMPORTS = {
    "import tools": "tools.WORD",
    "from . import tools": "tools.WORD",
    "from .tools import WORD": "WORD",
    "from tools import WORD": "WORD",
    "import desk.tools": "desk.tools.WORD",
    "from desk import tools": "tools.WORD",
    "from desk.tools import WORD": "WORD",
    "import team.desk.tools": "team.desk.tools.WORD",
    "import team.desk.tools as t": "t.WORD",
    "from team.desk import tools": "tools.WORD",
    "from team.desk.tools import WORD": "WORD",
}


@pytest.mark.parametrize("line", IMPORTS)
def test_modules_of_the_app_come_first(agents_dir: AgentsDir, loader: DirectoryAppLoader, line: str) -> None:
    for folder in ("other/desk", "team/desk", "team/bots", "team", "desk"):
        agents_dir.write(f"{folder}/tools.py", f"WORD = {folder!r}")
    says(agents_dir, "team.desk", line, IMPORTS[line])
    says(agents_dir, "other.desk", line.replace("team", "other"), IMPORTS[line].replace("team", "other"))
    path = list(sys.path)
    assert (description(loader, "other.desk"), description(loader, "team.desk")) == ("other/desk", "team/desk")
    assert sys.path == path
    assert {"team", "desk", "tools"}.isdisjoint(sys.modules)
    assert not list(agents_dir.path.rglob("__pycache__"))


def test_what_is_beside_the_app_or_above_is_shared(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write("team/near.py", "from far import calls\nWORD = 'near'")
    agents_dir.write("team/deep/er/words.py", "from . import more\nWORD = more.WORD")
    agents_dir.write("team/deep/er/more.py", "WORD = 'deep'")
    agents_dir.write("far.py", "calls = []")
    for app in ("team.bots", "team.desk"):
        lines = f"import near\nfrom far import calls\nfrom deep.er.words import WORD\ncalls.append({app!r})"
        same = "import team.near\nfrom team.deep.er import words\nfrom team.deep import er"
        says(agents_dir, app, f"{lines}\n{same}", "f'{near.calls} {team.near.WORD} {WORD} {words.WORD} {er.more.WORD}'")
    assert description(loader, "team.bots") == "['team.bots'] near deep deep deep"
    assert description(loader, "team.desk") == "['team.bots', 'team.desk'] near deep deep deep"


def test_the_nearer_module_counts(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    for folder in ("team/", ""):
        agents_dir.write(f"{folder}shared.py", f"WORD = 'in {folder}'")
    says(agents_dir, "team.desk", "from shared import WORD", "WORD")
    says(agents_dir, "solo", "from shared import WORD", "WORD")
    assert (description(loader, "team.desk"), description(loader, "solo")) == ("in team/", "in ")


def test_apps_that_import_each_other_keep_their_own_modules(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    """Also one that was not loaded itself before."""
    for app in ("bots", "desk"):
        agents_dir.write(f"team/{app}/tools.py", "from words import WORD")
        agents_dir.write(f"team/{app}/words.py", f"WORD = {app!r}")
        says(agents_dir, f"team.{app}", "from team.desk.tools import WORD as other\nimport tools", "tools.WORD + other")
    assert description(loader, "team.bots") == "botsdesk"
    assert description(loader, "team.desk") == "deskdesk"


def test_the_package_around_apps_runs_once(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    os.environ["TIMES"] = ""
    agents_dir.write("team/__init__.py", "import os\nos.environ['TIMES'] += 'I'\nWORD = 'team'")
    for app in ("bots", "desk"):
        says(agents_dir, f"team.{app}", "from .. import WORD", "WORD")
    assert {description(loader, app) for app in loader.list_apps()} == {"team"}
    assert os.environ["TIMES"] == "I"


def test_names_in_yaml_are_looked_for_in_the_same_places(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write("team/desk/tools.py", "def own() -> str:\n    return 'own'\n")
    agents_dir.write("team/near.py", "def near() -> str:\n    return 'near'\n")
    agents_dir.write("far.py", "def far() -> str:\n    return 'far'\n")
    names = (
        "tools.own",
        ".tools.own",
        "desk.tools.own",
        "team.desk.tools.own",
        "near.near",
        "team.near.near",
        "far.far",
    )
    tools = "".join(f"  - name: {name}\n" for name in names)
    text = f"name: desk\nmodel: scripted\ninstruction: x\ntools:\n{tools}"
    file = agents_dir.write("team/desk/root_agent.yaml", text)
    agent: Any = loader.load("team.desk").root_agent
    assert [tool() for tool in agent.tools] == ["own", "own", "own", "own", "near", "near", "far"]
    agents_dir.write("team/desk/root_agent.yaml", text.replace("team.near", "team.desk.nears"))
    loaded = DirectoryAppLoader(agents_dir.path)
    with pytest.raises(AppLoadError) as caught:
        loaded.load("team.desk")
    assert caught.value.reason.startswith("ConfigFileError: team/desk/root_agent.yaml:10: ")
    assert "the app has no module 'nears'" in caught.value.reason
    agents_dir.write("team/desk/root_agent.yaml", "name: desk\nmodel: scripted\ninstruction: x")
    assert load_agent(file).name == "desk"


# apps that fail


def test_a_broken_app_is_listed_and_says_what_is_wrong(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write("team/bots/agent.py", "\n1 / 0")
    agents_dir.write("team/desk/agent.py", "from .helper import x")
    agents_dir.write("team/menu/agent.py", "agent = 1")
    agents_dir.write("bad/__init__.py", "raise ValueError('no')")
    agents_dir.write("bad/shop/agent.py", "")
    agents_dir.write("hidden.py", "")
    agents_dir.write("hidden/shop/agent.py", "")
    assert {name: error.reason for name, error in loader.preload().items()} == {
        "bad.shop": "ValueError: no (bad/__init__.py:1)",
        "hidden.shop": "AgentConfigError: the module hidden.py hides the folder hidden",
        "team.bots": "ZeroDivisionError: division by zero (team/bots/agent.py:2)",
        "team.desk": "ModuleNotFoundError: No module named 'team.desk.helper' (team/desk/agent.py:1)",
        "team.menu": "AgentConfigError: neither team/menu/__init__.py nor team/menu/agent.py has a root_agent or an app",
    }
    assert loader.list_apps() == ["bad.shop", "hidden.shop", "team.bots", "team.desk", "team.menu"]


def test_a_broken_package_around_an_app_is_imported_again_after_a_change(agents_dir: AgentsDir) -> None:
    now = [0.0]
    loader = DirectoryAppLoader(agents_dir.path, clock=lambda: now[0])
    agents_dir.write("team/__init__.py", "WORD = 1 / 0")
    says(agents_dir, "team.desk", "from team import WORD", "WORD")
    with pytest.raises(AppLoadError, match=r"team/__init__\.py:1"):
        loader.load("team.desk")
    agents_dir.write("team/__init__.py", "WORD = 'mended'")
    now[0] += 2
    assert description(loader, "team.desk") == "mended"


# .env


def test_the_nearest_env_file_counts(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    agents_dir.write(".env", "GREENROOM_TEST_KEY=top")
    agents_dir.write("team/.env", "GREENROOM_TEST_KEY=team")
    agents_dir.write("team/desk/.env", "GREENROOM_TEST_KEY=desk")
    for app in ("team.bots", "team.desk", "solo"):
        says(agents_dir, app, "import os", "os.environ['GREENROOM_TEST_KEY']")
    assert [description(loader, app) for app in ("team.bots", "team.desk", "solo")] == ["team", "desk", "top"]


# changes while serving


def test_nested_apps_change_come_and_go(agents_dir: AgentsDir, loader: DirectoryAppLoader) -> None:
    says(agents_dir, "team.desk", "from near import WORD", "WORD + ' old'")
    agents_dir.write("team/near.py", "WORD = 'first'")
    assert description(loader, "team.desk") == "first old"
    says(agents_dir, "team.desk", "from near import WORD", "WORD + ' new'")
    settle(loader)
    assert description(loader, "team.desk") == "first new"
    agents_dir.write("team/near.py", "WORD = 'second'")
    settle(loader)
    assert description(loader, "team.desk") == "second new"
    agents_dir.write("team/desk/agent.py", "broken(")
    settle(loader)
    assert description(loader, "team.desk") == "second new"
    assert list(loader.problems()) == ["team.desk"]

    says(agents_dir, "team.deep.bots", "", "'come'")
    shutil.rmtree(agents_dir.path / "team" / "desk")
    settle(loader)
    assert loader.list_apps() == ["team.deep.bots"]
    assert (description(loader, "team.deep.bots"), loader.problems()) == ("come", {})
    with pytest.raises(AppNotFound):
        loader.load("team.desk")


@pytest.mark.parametrize("file", ["agent.py", "__init__.py"])
def test_a_folder_of_apps_can_become_one_and_back(agents_dir: AgentsDir, file: str) -> None:
    loader = DirectoryAppLoader(agents_dir.path)
    says(agents_dir, "team.desk", "", "'inner'")
    assert description(loader, "team.desk") == "inner"
    agents_dir.write(f"team/{file}", SAYS.format(imports="", words="'outer'"))
    settle(loader)
    assert (loader.list_apps(), description(loader, "team")) == (["team"], "outer")
    (agents_dir.path / "team" / file).unlink()
    settle(loader)
    assert (loader.list_apps(), description(loader, "team.desk")) == (["team.desk"], "inner")


def test_a_nested_app_that_comes_is_served_within_a_second(agents_dir: AgentsDir) -> None:
    agents_dir.agent("shop")
    loader = DirectoryAppLoader(agents_dir.path, hot_reload=True)
    try:
        loader.preload()
        says(agents_dir, "team.desk", "", "'come'")
        soon(lambda: "team.desk" in loader.list_apps() and description(loader, "team.desk") == "come")
        says(agents_dir, "team.desk", "", "'changed'")
        soon(lambda: description(loader, "team.desk") == "changed")
    finally:
        loader.close()


def test_a_folder_inside_is_served_as_one_app_of_its_own_name(agents_dir: AgentsDir) -> None:
    says(agents_dir, "team.desk", "import tools", "tools.WORD")
    path: Path = agents_dir.write("team/desk/tools.py", "WORD = 'own'").parent
    loader = DirectoryAppLoader(path)
    assert (loader.list_apps(), description(loader, "desk")) == (["desk"], "own")
    assert DirectoryAppLoader(path.parent).list_apps() == ["desk"]
