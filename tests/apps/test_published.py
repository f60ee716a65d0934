"""Copies of an app's files: what is in them, and that they run apart from the folder."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.agent_descriptions import describe_agents
from greenroom.apps.compare_versions import MAX_DIFF_LINES, compare_agents, compare_files
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import StaticAppLoader
from greenroom.apps.published import MAX_BYTES, MAX_FILES, RETRY_SECONDS, PublishedApps, hash_of, pack, unpack
from greenroom.errors import AppLoadError, NotOffered, TooLarge
from greenroom.records.app_version import PublishedVersion
from greenroom.versions.in_memory import InMemoryVersionStore

AGENT = '''
from pathlib import Path
from greenroom import LlmAgent, SequentialAgent
from greenroom.types import GenerateContentConfig
from shared.prices import CURRENCY
from . import tools

def look_up(city: str) -> str:
    """Looks up a city."""
    from .late import RESULT
    from shared.late import RATE
    return f"{RESULT} {RATE}"

helper = LlmAgent(name="helper", model="gemini-2.5-flash", instruction=Path(__file__).with_name("prompt.txt").read_text())
clerk = LlmAgent(
    name="clerk",
    model="gemini-2.5-pro",
    instruction="Price in " + CURRENCY,
    generate_content_config=GenerateContentConfig(temperature=0.5),
    tools=[look_up],
)
root_agent = SequentialAgent(name="desk", sub_agents=[clerk, helper])
'''
FILES = {
    "desk/agent.py": AGENT,
    "desk/tools.py": "",
    "desk/late.py": "RESULT = 'first'",
    "desk/prompt.txt": "Help.\nBe brief.\n",
    "desk/.env": "",
    "desk/.hidden/x.py": "",
    "desk/__pycache__/x.pyc": "",
    "shared/prices.py": "CURRENCY = 'EUR'",
    "shared/late.py": "RATE = 2",
    "shared/data/rates.csv": "EUR,1",
    "unused/module.py": "",
    "other/agent.py": "1 / 0",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def published_in(folder: Path) -> PublishedApps:
    return PublishedApps(DirectoryAppLoader(folder), InMemoryVersionStore())


async def test_a_version_has_the_files_that_the_app_runs_from(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    snapshot = await published_in(tmp_path).snapshot("desk")
    assert sorted(snapshot.files) == [
        "desk/agent.py",
        "desk/late.py",
        "desk/prompt.txt",
        "desk/tools.py",
        "shared/data/rates.csv",
        "shared/late.py",
        "shared/prices.py",
    ]
    assert unpack(pack(snapshot.files)) == snapshot.files
    (tmp_path / "desk" / "prompt.txt").write_text("Help.\n")
    assert (await published_in(tmp_path).snapshot("desk")).version != snapshot.version


async def test_a_version_runs_from_its_own_files(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    store = InMemoryVersionStore()
    apps = DirectoryAppLoader(tmp_path)
    published = PublishedApps(apps, store)
    snapshot = await published.snapshot("desk")
    version = PublishedVersion(app_name="desk", name="", version=snapshot.version, published_at=1.0)
    await store.publish(version, pack(snapshot.files))
    for name in FILES:
        (tmp_path / name).unlink()

    for loaded in (published, PublishedApps(apps, store)):
        app = await loaded.load("desk", snapshot.version)
        assert app is not None
        assert (app.name, app.version) == ("desk", snapshot.version)
        clerk, helper = app.root_agent.sub_agents
        assert isinstance(clerk, LlmAgent)
        assert isinstance(helper, LlmAgent)
        assert (clerk.instruction, helper.instruction) == ("Price in EUR", "Help.\nBe brief.\n")
        [tool] = clerk.tools
        assert callable(tool)
        assert tool("Bonn") == "first 2"
        assert await loaded.load("desk", snapshot.version) is app
        loaded.close()
    assert await published.load("desk", "unknown") is None


async def test_an_app_of_nested_folders_and_a_single_one_can_be_published(tmp_path: Path) -> None:
    agent = "from greenroom import LlmAgent\nfrom .. import NAME\nroot_agent = LlmAgent(name=NAME)\n"
    agent = "from team.common import name\n" + agent
    write(tmp_path, {"team/__init__.py": "NAME = 'bot'", "team/bots/agent.py": agent, "team/bots/__init__.py": ""})
    write(tmp_path, {"team/common.py": "name = 1", "team/cats/agent.py": "", "team/rest.py": ""})
    published = published_in(tmp_path)
    snapshot = await published.snapshot("team.bots")
    assert sorted(snapshot.files) == [
        "team/__init__.py",
        "team/bots/__init__.py",
        "team/bots/agent.py",
        "team/common.py",
    ]
    assert (await published.load_files("team.bots", snapshot)).root_agent.name == "bot"

    write(tmp_path, {"single/agent.py": "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='one')\n"})
    alone = published_in(tmp_path / "single")
    assert (await alone.load_files("single", await alone.snapshot("single"))).root_agent.name == "one"


async def test_what_cannot_be_published_is_refused(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    published = published_in(tmp_path)
    with pytest.raises(AppLoadError, match="division by zero"):
        await published.snapshot("other")
    (tmp_path / "desk" / "data.bin").write_bytes(bytes(MAX_BYTES))
    with pytest.raises(TooLarge, match=r"desk/data\.bin"):
        await published.snapshot("desk")
    (tmp_path / "desk" / "data.bin").unlink()
    for number in range(MAX_FILES):
        (tmp_path / "desk" / f"{number}.txt").touch()
    with pytest.raises(NotOffered, match="more than 1000"):
        await published.snapshot("desk")
    in_code = PublishedApps(StaticAppLoader([LlmAgent(name="coded")]), InMemoryVersionStore())
    with pytest.raises(NotOffered, match="served folder"):
        await in_code.snapshot("coded")


async def test_files_that_cannot_be_loaded_are_no_version(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    published = published_in(tmp_path)
    snapshot = await published.snapshot("desk")
    files = {name: data for name, data in snapshot.files.items() if name != "shared/prices.py"}
    with pytest.raises(AppLoadError, match=r"No module named 'shared\.prices'"):
        await published.load_files("desk", snapshot._replace(files=files))
    assert (await published.load_files("desk", snapshot)).version == snapshot.version


async def test_a_version_that_cannot_be_loaded_is_tried_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "installed")
    needs = "import needed_package\nfrom greenroom import LlmAgent\nroot_agent = LlmAgent(name='desk')\n"
    write(tmp_path / "agents", {"desk/agent.py": needs})
    now = 0.0
    store = InMemoryVersionStore()
    published = PublishedApps(DirectoryAppLoader(tmp_path / "agents"), store, clock=lambda: now)
    files = {"desk/agent.py": needs.encode()}
    version = PublishedVersion(app_name="desk", name="", version=hash_of(files), published_at=1.0)
    await store.publish(version, pack(files))
    with pytest.raises(AppLoadError, match=f"version {version.version}: .*No module named 'needed_package'"):
        await published.load("desk", version.version)
    write(tmp_path / "installed", {"needed_package.py": ""})
    importlib.invalidate_caches()
    with pytest.raises(AppLoadError, match="needed_package"):
        await published.load("desk", version.version)
    now = RETRY_SECONDS
    assert await published.load("desk", version.version) is not None


async def test_agents_are_compared(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    before = await describe_agents(DirectoryAppLoader(tmp_path).load("desk"))
    assert [agent.name for agent in before] == ["desk", "clerk", "helper"]
    assert before[1].settings == {"generate_content_config": {"temperature": 0.5}}
    assert compare_agents(before, before) == []

    changed = AGENT.replace("city: str", "city: str, country: str").replace("0.5", "0.1").replace("2.5-pro", "3-pro")
    changed = changed.replace("sub_agents=[clerk, helper]", "sub_agents=[clerk]").replace(
        "Price in", "Name the price in"
    )
    write(tmp_path, {"desk/agent.py": changed})
    after = await describe_agents(DirectoryAppLoader(tmp_path).load("desk"))
    clerk, desk, helper = compare_agents(before, after)
    assert {field.field: (field.before, field.after) for field in clerk.fields} == {
        "model": ("gemini-2.5-pro", "gemini-3-pro"),
        "instruction": ("Price in EUR", "Name the price in EUR"),
        "settings.generate_content_config": ({"temperature": 0.5}, {"temperature": 0.1}),
    }
    [tool] = clerk.tools
    assert (tool.name, tool.change) == ("look_up", "changed")
    assert tool.after is not None
    assert tool.after.parameters_json_schema is not None
    assert list(tool.after.parameters_json_schema["properties"]) == ["city", "country"]
    assert [(field.field, field.before, field.after) for field in desk.fields] == [
        ("sub_agents", ["clerk", "helper"], ["clerk"])
    ]
    assert (helper.change, helper.fields[-1].after) == ("removed", None)
    [added] = [one for one in compare_agents(after, before) if one.name == "helper"]
    assert added.change == "added"
    assert [field.diff for field in added.fields if field.field == "instruction"] == [
        "@@ -0,0 +1,2 @@\n+Help.\n+Be brief."
    ]


def test_files_are_compared_up_to_a_limit() -> None:
    long = "x\n" * (MAX_DIFF_LINES + 1)
    before = {"a": b"1\n2\n", "b": b"\xff", "c": b"same", "d": b"gone", "e": long.encode()}
    after = {"a": b"1\n3\n", "b": b"\xfe", "c": b"same", "e": b"short", "f": b"new"}
    changes = compare_files(before, after)
    assert [(one.path, one.change, one.diff) for one in changes] == [
        ("a", "changed", "@@ -1,2 +1,2 @@\n 1\n-2\n+3"),
        ("b", "changed", None),
        ("d", "removed", "@@ -1 +0,0 @@\n-gone"),
        ("e", "changed", None),
        ("f", "added", "@@ -0,0 +1 @@\n+new"),
    ]
