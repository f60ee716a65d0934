from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.unsafe_local import UnsafeLocalCodeExecutor
from greenroom.environments.local import LocalEnvironment
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ToolContext
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.skills import scripts as skill_scripts
from greenroom.tools.skills import skill as skills
from greenroom.tools.skills import toolset as skill_toolset
from greenroom.tools.skills.scripts import ScriptResult, script_command
from greenroom.tools.skills.skill import (
    ForbiddenPath,
    Frontmatter,
    InvalidSkill,
    Skill,
    list_skills_in_dir,
    list_skills_in_dir_async,
    load_skill_from_dir,
    load_skill_from_dir_async,
    load_skill_from_zip,
    load_skills_from_dir,
    load_skills_from_dir_async,
)
from greenroom.tools.skills.toolset import (
    MAX_ACTIVE,
    SkillDiscoveryMode,
    SkillLifecycleConfig,
    SkillLifecycleMode,
    SkillRegistry,
    SkillToolset,
)
from tests.agents.talk import Talk, call, lines_of, shown
from tests.tools.one_call import Calls, call_once, calls_in_a_run, offered

Json = dict[str, Any]

PNG = b"\x89PNG\r\n\x1a\n\0\0"


def skill(name: str = "brewing", *, metadata: Json | None = None) -> Skill:
    return Skill(
        frontmatter=Frontmatter(name=name, description=f"How {name} works.", metadata=metadata or {}),
        instructions=f"Steps of {name}.",
        resources={"references/rules.md": "Rule 1", "assets/logo.png": PNG, "scripts/run.py": "print(1)"},
    )


def write(root: Path, text: str, *, name: str = "brewing", file: str = "SKILL.md") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    return folder


FRONT = "---\nname: brewing\ndescription: Brews.\n---\n"


async def ask(toolset: SkillToolset, name: str, args: Json) -> Json:
    """The response of one call that a model gets."""
    return (await call_once(toolset, name, args)).response


# Folders and archives


@pytest.mark.parametrize("file", ["SKILL.md", "skill.md"])
async def test_a_folder_is_a_skill(tmp_path: Path, file: str) -> None:
    text = (
        "\ufeff---\nname: brewing\ndescription: >\n  Brews\n  coffee.\nlicense: MIT\ncompatibility: any\n"
        "allowed-tools: [a, b]\nmetadata:\n  adk_additional_tools: [grind]\n  adk_inject_state: true\n"
        "  since: 2024-01-02\n"
        "---\n\n# Brewing\n---\nDo it.\n"
    )
    found = load_skill_from_dir(write(tmp_path, text, file=file))
    assert found.instructions == "# Brewing\n---\nDo it."
    metadata = {"adk_additional_tools": ["grind"], "adk_inject_state": True, "since": "2024-01-02"}
    assert found.frontmatter == Frontmatter(
        name="brewing",
        description="Brews coffee.",
        license="MIT",
        compatibility="any",
        allowed_tools="a b",
        metadata=metadata,
    )
    assert await ask(SkillToolset(skills_dir=tmp_path), "load_skill", {"skill_name": "brewing"}) == {
        "skill_name": "brewing",
        "instructions": "# Brewing\n---\nDo it.",
        "frontmatter": {
            "name": "brewing",
            "description": "Brews coffee.",
            "license": "MIT",
            "compatibility": "any",
            "allowed-tools": "a b",
            "metadata": metadata,
        },
    }


def test_all_skills_of_a_folder_are_loaded_and_other_folders_left_alone(tmp_path: Path) -> None:
    write(tmp_path, FRONT)
    write(tmp_path, FRONT.replace("brewing", "baking"), name="baking")
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("")
    assert [one.name for one in load_skills_from_dir(tmp_path)] == ["baking", "brewing"]
    with pytest.raises(AgentConfigError, match="no folder"):
        load_skills_from_dir(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# no front matter", "front matter"),
        ("---\nname: brewing\n", "front matter"),
        ("---\n- a\n---\n", "not a map"),
        ("---\na: [\n---\n", "YAML"),
        ("---\nname: brewing\n---\n", "description"),
        (f"---\nname: brewing\ndescription: {'x' * 1025}\n---\n", "description"),
        (f"---\nname: brewing\ndescription: x\ncompatibility: {'x' * 501}\n---\n", "compatibility"),
        ("---\ndescription: x\n---\n", "name"),
        ("---\nname: other\ndescription: x\n---\n", "folder is called 'brewing'"),
        ("---\nname: brewing\ndescription: x\nmetadata: 3\n---\n", "metadata"),
        ("---\nname: brewing\ndescription: x\nmetadata: {adk_additional_tools: [1]}\n---\n", "adk_additional_tools"),
    ],
)
def test_what_is_wrong_with_a_skill_is_said(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidSkill, match=reason):
        load_skill_from_dir(write(tmp_path, text))


@pytest.mark.parametrize("name", ["Brewing", "brewing-", "-brewing", "a--b", "a b", "a/b", "x" * 65, "käse", ""])
def test_names_are_kebab_case(name: str) -> None:
    with pytest.raises(InvalidSkill):
        Frontmatter(name=name, description="x")


async def test_snake_case_names_need_a_flag(tmp_path: Path) -> None:
    folder = write(tmp_path, FRONT.replace("brewing", "cold_brew"), name="cold_brew")
    with pytest.raises(InvalidSkill, match="hyphens"):
        load_skill_from_dir(folder)
    assert load_skill_from_dir(folder, allow_snake_case=True).name == "cold_brew"
    toolset = SkillToolset(skills_dir=tmp_path, allow_snake_case=True)
    assert (await ask(toolset, "load_skill", {"skill_name": "cold_brew"}))["skill_name"] == "cold_brew"


def test_a_folder_without_a_skill_file_or_with_a_huge_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSkill, match=r"no SKILL\.md"):
        load_skill_from_dir(tmp_path)
    monkeypatch.setattr(skills, "MAX_INSTRUCTIONS_BYTES", 10)
    with pytest.raises(InvalidSkill, match="larger than 10 bytes"):
        load_skill_from_dir(write(tmp_path, FRONT))


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()


@pytest.mark.parametrize("folder", ["", "brewing/"])
def test_an_archive_is_a_skill(folder: str) -> None:
    files = {"SKILL.md": FRONT + "Do it.", "references/a.md": "A", "scripts/x.py": "1", "LICENSE": "MIT", ".env": "no"}
    found = load_skill_from_zip(zipped({folder + path: content for path, content in files.items()}))
    assert (found.name, found.instructions) == ("brewing", "Do it.")
    texts = {path: content.encode() for path, content in files.items() if path != ".env"}
    assert found.files() == texts


@pytest.mark.parametrize("folder", ["references", "assets", "scripts"])
@pytest.mark.parametrize("is_zip", [True, False])
async def test_a_model_reads_what_lies_in_a_skills_three_folders(tmp_path: Path, folder: str, is_zip: bool) -> None:
    if is_zip:
        toolset = SkillToolset([load_skill_from_zip(zipped({"SKILL.md": FRONT, f"{folder}/a.txt": "A"}))])
    else:
        write(write(tmp_path, FRONT), "A", name=folder, file="a.txt")
        toolset = SkillToolset(skills_dir=tmp_path)
    args = {"skill_name": "brewing", "file_path": f"{folder}/a.txt"}
    assert await ask(toolset, "load_skill_resource", args) == {**args, "content": "A"}


async def test_names_and_descriptions_may_be_as_long_as_is_said(tmp_path: Path) -> None:
    name, description = "x" * 64, "y" * 1024
    write(tmp_path, f"---\nname: {name}\ndescription: {description}\n---\n", name=name)
    reply = await ask(SkillToolset(skills_dir=tmp_path), "list_skills", {})
    assert f"<name>{name}</name><description>{description}</description>" in reply["result"]


@pytest.mark.parametrize("path", ["../evil.md", "/etc/evil.md", "a/../../evil.md", "..\\evil.md", "C:/evil.md"])
def test_an_archive_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(InvalidSkill, match="leads out"):
        load_skill_from_zip(zipped({"SKILL.md": FRONT, path: ""}))


def test_an_archive_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (skills.MAX_ZIP_ENTRIES, skills.MAX_SKILL_BYTES) == (2000, 32 * 1024 * 1024)
    bomb = zipped({"SKILL.md": FRONT, "assets/zeros": b"\0" * 2_000_000})
    assert len(bomb) < 10_000
    monkeypatch.setattr(skills, "MAX_SKILL_BYTES", 1_000_000)
    with pytest.raises(InvalidSkill, match="more than 1000000 bytes"):
        load_skill_from_zip(bomb)
    monkeypatch.setattr(skills, "MAX_ZIP_ENTRIES", 1)
    with pytest.raises(InvalidSkill, match="more than 1 entries"):
        load_skill_from_zip(bomb)


@pytest.mark.parametrize("archive", [b"", b"PK nonsense", zipped({"README.md": "x"}), zipped({"a/b/SKILL.md": FRONT})])
def test_what_is_no_archive_of_a_skill_is_refused(archive: bytes) -> None:
    with pytest.raises(InvalidSkill):
        load_skill_from_zip(archive)


PATHS_OUT = [
    "../brewing/SKILL.md", "references/../SKILL.md", "references/../../x", "..", ".env", ".git/config",
    "references/.hidden", "/etc/passwd", "references\\..\\x", "references/a\0b", "", ".",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS_OUT)
def test_no_path_leads_out_of_a_skills_folder(tmp_path: Path, path: str) -> None:
    folder = write(tmp_path, FRONT)
    write(tmp_path, "secret", name="brewing/.git", file="config")
    write(tmp_path, "secret", name="brewing", file=".env")
    for one in (load_skill_from_dir(folder), skill()):
        with pytest.raises(ForbiddenPath):
            one.read(path, max_bytes=100)


def test_no_link_leads_out_of_a_skills_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "skills", FRONT)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("hush")
    (folder / "references").mkdir()
    (folder / "references" / "ok.md").write_text("fine")
    (folder / "references" / "key").symlink_to(tmp_path / "secret" / "key")
    (folder / ".env").write_text("hush")
    (folder / "references" / "self.md").symlink_to(folder / ".env")
    (folder / "references" / "inner.md").symlink_to(folder / "references" / "ok.md")
    (folder / "assets").symlink_to(tmp_path / "secret")
    found = load_skill_from_dir(folder)
    for path in ("references/key", "references/self.md", "assets/key"):
        with pytest.raises(ForbiddenPath):
            found.read(path, max_bytes=100)
    assert found.read("references/inner.md", max_bytes=100) == b"fine"
    texts = {"SKILL.md": FRONT.encode(), "references/inner.md": b"fine", "references/ok.md": b"fine"}
    assert found.files() == texts
    with pytest.raises(OverflowError):
        found.files(max_bytes=5)


# What a model can do


async def test_the_catalogue_holds_names_and_descriptions() -> None:
    odd = Skill(frontmatter=Frontmatter(name="odd", description="a < b & c"), instructions="")
    toolset = SkillToolset([skill(), odd])
    assert await ask(toolset, "list_skills", {}) == {
        "result": "<available_skills><skill><name>brewing</name><description>How brewing works.</description></skill>"
        "<skill><name>odd</name><description>a &lt; b &amp; c</description></skill></available_skills>"
    }


async def test_two_skills_of_one_name_are_refused() -> None:
    with pytest.raises(AgentConfigError, match="two skills"):
        SkillToolset([skill(), skill()])


async def test_a_loaded_skill_gives_its_instructions_and_is_remembered() -> None:
    made = await call_once(SkillToolset([skill()]), "load_skill", {"skill_name": "brewing"})
    assert made.response == {
        "skill_name": "brewing",
        "instructions": "Steps of brewing.",
        "frontmatter": {"name": "brewing", "description": "How brewing works."},
    }
    assert made.actions.state_delta == {"_adk_activated_skill_agent": ["brewing"]}


RESOURCE_ARGS = {"skill_name": "brewing", "file_path": "references/none.md"}


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("load_skill", {}, "INVALID_ARGUMENTS"),
        ("load_skill", {"skill_name": 3}, "INVALID_ARGUMENTS"),
        ("load_skill", {"skill_name": "none"}, "SKILL_NOT_FOUND"),
        ("load_skill_resource", {"skill_name": "brewing"}, "INVALID_ARGUMENTS"),
        ("load_skill_resource", {"skill_name": "none", "file_path": "references/a"}, "SKILL_NOT_FOUND"),
        ("load_skill_resource", {"skill_name": "brewing", "file_path": "../x"}, "INVALID_RESOURCE_PATH"),
        ("load_skill_resource", RESOURCE_ARGS, "RESOURCE_NOT_FOUND"),
        ("run_skill_script", {"skill_name": "brewing"}, "INVALID_ARGUMENTS"),
        ("run_skill_script", {"skill_name": "none", "file_path": "scripts/run.py"}, "SKILL_NOT_FOUND"),
        ("run_skill_script", {"skill_name": "brewing", "file_path": "scripts/none.py"}, "SCRIPT_NOT_FOUND"),
        ("run_skill_script", {"skill_name": "brewing", "file_path": "assets/logo.png"}, "UNSUPPORTED_SCRIPT_TYPE"),
        ("run_skill_script", {"skill_name": "brewing", "file_path": "run.py", "args": 3}, "INVALID_ARGUMENTS"),
        ("unload_skill", {"skill_name": "brewing"}, "SKILL_NOT_FOUND"),
    ],
)
async def test_mistakes_are_reported_with_a_code(name: str, args: Json, code: str) -> None:
    toolset = SkillToolset([skill()], offers_unload=True, code_executor=UnsafeLocalCodeExecutor())
    answer = await ask(toolset, name, args)
    assert answer["error_code"] == code
    assert answer["error"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("load_skill_resource", "RESOURCE_NOT_FOUND_FATAL"), ("run_skill_script", "SCRIPT_NOT_FOUND_FATAL")],
)
async def test_the_second_miss_of_a_run_is_fatal(name: str, code: str) -> None:
    toolset = SkillToolset([skill()], code_executor=UnsafeLocalCodeExecutor())
    first, second = ("load_skill_resource", RESOURCE_ARGS), (name, {**RESOURCE_ARGS, "file_path": "scripts/none.py"})
    made = await calls_in_a_run(toolset, first, second)
    assert [answer["error_code"] for answer in made.responses] == ["RESOURCE_NOT_FOUND", code]
    model = ScriptedModel([call(first[0], **first[1]), "Sorry.", call(first[0], **first[1]), "Sorry again."])
    talk = Talk(LlmAgent(name="agent", model=model, tools=[toolset]))
    for _ in range(2):
        (answer,) = [r.response or {} for event in await talk.say("go") for r in event.get_function_responses()]
        assert answer["error_code"] == "RESOURCE_NOT_FOUND"


async def test_a_text_file_is_read_at_once() -> None:
    args = {"skill_name": "brewing", "file_path": "references/rules.md"}
    answer = await ask(SkillToolset([skill()]), "load_skill_resource", args)
    assert answer == {**args, "content": "Rule 1"}


async def test_a_file_that_is_too_large_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_toolset, "MAX_RESOURCE_BYTES", 3)
    args = {"skill_name": "brewing", "file_path": "references/rules.md"}
    answer = await ask(SkillToolset([skill()]), "load_skill_resource", args)
    assert answer["error_code"] == "RESOURCE_TOO_LARGE"


async def test_a_model_finds_loads_and_reads_a_skill(tmp_path: Path) -> None:
    folder = write(tmp_path, FRONT + "Read references/rules.md.")
    (folder / "references").mkdir()
    (folder / "references" / "rules.md").write_text("Rule 1")
    (folder / "references" / "map.png").write_bytes(PNG)
    model = ScriptedModel(
        [
            call("list_skills", "c1"),
            call("load_skill", "c2", skill_name="brewing"),
            call("load_skill_resource", "c3", skill_name="brewing", file_path="references/rules.md"),
            call("load_skill_resource", "c4", skill_name="brewing", file_path="references/map.png"),
            call("list_skills", "c5"),
            "Done.",
        ]
    )
    talk = Talk(LlmAgent(name="barista", model=model, tools=[SkillToolset(skills_dir=tmp_path)]))
    lines = lines_of(await talk.say("Coffee!"))
    assert "<name>brewing</name>" in lines[1]
    assert "Read references/rules.md." in lines[3]
    assert "'content': 'Rule 1'" in lines[6]
    assert "call `load_skill`" in model.requests[0].config.system_text()
    assert "How brewing" not in model.requests[0].config.system_text()
    last = model.requests[4].contents[-1]
    assert last.role == "user"
    assert last.parts is not None
    blob = last.parts[1].inline_data
    assert blob is not None
    assert (blob.data, blob.mime_type) == (PNG, "image/png")
    assert all("references/map.png of skill" not in line for line in shown(model.requests[5]))
    assert (await talk.state())["_adk_activated_skill_barista"] == ["brewing"]


async def test_an_eager_catalogue_is_in_the_instruction() -> None:
    model = ScriptedModel(["Hi."])
    await Talk(LlmAgent(name="barista", model=model, tools=[SkillToolset([skill()], discovery="EAGER")])).say("hi")
    assert "<name>brewing</name>" in model.requests[0].config.system_text()
    assert "list_skills" not in [d.name for d in model.requests[0].function_declarations()]


async def test_state_is_filled_in_where_the_skill_wants_it() -> None:
    text = 'Dear {user:name}, {none?}{none} {"json": 1}'
    for wants, expected in [(True, 'Dear Ada, {none} {"json": 1}'), (False, text)]:
        frontmatter = Frontmatter(name="letters", description="x", metadata={"adk_inject_state": wants})
        toolset = SkillToolset([Skill(frontmatter=frontmatter, instructions=text)])
        made = await calls_in_a_run(toolset, ("load_skill", {"skill_name": "letters"}), state={"user:name": "Ada"})
        assert made.response["instructions"] == expected


def grind(beans: str) -> str:
    """Grinds beans."""
    return f"ground {beans}"


def roast(beans: str) -> str:
    """Roasts beans."""
    return f"roasted {beans}"


async def test_a_loaded_skill_brings_the_tools_it_names() -> None:
    brewing = skill(metadata={"adk_additional_tools": ["grind"]})
    toolset = SkillToolset([brewing], additional_tools=[grind, roast], offers_unload=True)
    model = ScriptedModel(
        [
            call("load_skill", "c1", skill_name="brewing"),
            call("grind", "c2", beans="all"),
            call("unload_skill", "c3", skill_name="brewing"),
            "Done.",
        ]
    )
    lines = lines_of(await Talk(LlmAgent(name="barista", model=model, tools=[toolset])).say("hi"))
    assert "barista: grind -> {'result': 'ground all'}" in lines
    offered = [
        {str(d.name) for d in request.function_declarations()} & {"grind", "roast"} for request in model.requests
    ]
    assert offered == [set(), {"grind"}, {"grind"}, set()]


async def test_bounded_skills_make_room() -> None:
    names = [f"s{n}" for n in range(MAX_ACTIVE + 1)]
    toolset = SkillToolset([skill(name) for name in names], lifecycle="bounded")
    made = await calls_in_a_run(toolset, *[("load_skill", {"skill_name": name}) for name in ["s0", *names]])
    assert [answer.get("unloaded_skills") for answer in made.responses] == [None] * 6 + [["s0"]]
    assert "At most 5" in made.responses[0]["lifecycle_notice"]
    assert made.state["_adk_activated_skill_agent"] == names[1:]


async def test_an_ephemeral_skill_is_gone_with_the_run() -> None:
    brewing = skill(metadata={"adk_additional_tools": ["grind"]})
    toolset = SkillToolset([brewing], additional_tools=[grind], lifecycle="ephemeral")
    model = ScriptedModel([call("load_skill", "c1", skill_name="brewing"), "Done.", "Again."])
    talk = Talk(LlmAgent(name="barista", model=model, tools=[toolset]))
    lines = lines_of(await talk.say("hi"))
    assert "'lifecycle_notice'" in lines[1]
    await talk.say("again")
    offered = ["grind" in [d.name for d in request.function_declarations()] for request in model.requests]
    assert offered == [False, True, False]
    assert await talk.state() == {}


async def test_unloading_needs_a_flag() -> None:
    assert "unload_skill" not in await offered(SkillToolset([skill()]))
    toolset = SkillToolset([skill()], offers_unload=True)
    args = {"skill_name": "brewing"}
    made = await calls_in_a_run(toolset, ("load_skill", args), ("unload_skill", args))
    assert made.responses[1] == {"skill_name": "brewing", "status": "unloaded"}
    assert made.state["_adk_activated_skill_agent"] == []


async def test_the_filter_and_broken_state_are_minded() -> None:
    toolset = SkillToolset([skill()], tool_filter=["load_skill"], additional_tools=[grind])
    assert list(await offered(toolset, state={"_adk_activated_skill_agent": "nonsense"})) == ["load_skill"]


# Registries


class Registry(SkillRegistry):
    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.loaded: list[str] = []

    async def search_skills(self, *, query: str) -> list[Frontmatter]:
        if self.fails:
            raise ConnectionError("key=hush")
        return [skill("baking").frontmatter] if query == "cake" else []

    async def get_skill(self, *, name: str) -> Skill | None:
        if self.fails:
            raise ConnectionError("key=hush")
        self.loaded.append(name)
        return skill("baking") if name == "baking" else None


async def test_a_registry_is_searched_and_loaded_from() -> None:
    registry = Registry()
    toolset = SkillToolset([skill()], registry=registry)
    assert "search_skills" not in await offered(SkillToolset([skill()]))
    found = await ask(toolset, "search_skills", {"query": "cake"})
    assert "<name>baking</name>" in found["result"]
    for _ in range(2):
        answer = await ask(toolset, "load_skill", {"skill_name": "baking"})
        assert answer["instructions"] == "Steps of baking."
    assert registry.loaded == ["baking"]
    answer = await ask(toolset, "load_skill", {"skill_name": "none"})
    assert answer["error_code"] == "SKILL_NOT_FOUND"


@pytest.mark.parametrize(("name", "args"), [("search_skills", {"query": "x"}), ("load_skill", {"skill_name": "x"})])
async def test_a_registry_that_fails_is_reported(name: str, args: Json) -> None:
    answer = await ask(SkillToolset([skill()], registry=Registry(fails=True)), name, args)
    assert answer["error_code"] == "REGISTRY_ERROR"
    assert "hush" not in answer["error"]


# Scripts


class LocalRunner:
    """Runs in a folder of its own, with nothing kept out: for tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def run_script(
        self, *, command: list[str], files: Mapping[str, bytes], timeout_seconds: float, tool_context: ToolContext
    ) -> ScriptResult:
        for path, content in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(content)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        new = {str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file()} - set(files)
        made = {path: (self.folder / path).read_bytes() for path in new}
        return ScriptResult(stdout=out.decode(), stderr=err.decode(), exit_code=process.returncode or 0, made=made)


def with_script(tmp_path: Path, path: str, source: str, *, seconds: float = 10) -> SkillToolset:
    resources: dict[str, str | bytes] = {path: source, "references/a.txt": "A"}
    brewing = Skill(frontmatter=skill().frontmatter, instructions="", resources=resources)
    return SkillToolset([brewing], script_runner=LocalRunner(tmp_path), script_timeout_seconds=seconds)


async def run_script(tmp_path: Path, name: str, source: str, args: Json | None = None) -> Calls:
    path = f"scripts/{name}"
    toolset = with_script(tmp_path, path, source)
    return await call_once(toolset, "run_skill_script", {"skill_name": "brewing", "file_path": path, **(args or {})})


async def test_a_script_runs_among_the_skills_files(tmp_path: Path) -> None:
    source = "import sys\nprint(open('references/a.txt').read(), sys.argv)"
    args = {"args": {"size": 2}, "short_options": {"v": True}, "positional_args": ["x y"]}
    assert (await run_script(tmp_path, "run.py", source, args)).response == {
        "skill_name": "brewing",
        "file_path": "scripts/run.py",
        "stdout": "A ['scripts/run.py', '--size', '2', '-v', 'x y']\n",
        "stderr": "",
        "status": "success",
    }


@pytest.mark.parametrize(("source", "status"), [("echo a", "success"), ("echo a >&2", "warning"), ("exit 3", "error")])
@pytest.mark.parametrize("name", ["run.sh", "run.bash"])
async def test_the_status_of_a_script(tmp_path: Path, name: str, source: str, status: str) -> None:
    assert (await run_script(tmp_path, name, source)).response["status"] == status


@pytest.mark.parametrize(
    ("args", "command"),
    [
        ({}, []),
        ({"args": ["-x", 1, True]}, ["-x", "1", "true"]),
        ({"args": {"size": 2, "all": True, "none": False, "null": None, "tag": ["a", "b"], "--dry": True}},
         ["--size", "2", "--all", "--tag", "a", "--tag", "b", "--dry"]),
        ({"short_options": {"v": True, "n": 3}, "positional_args": ["; rm -rf /"]}, ["-v", "-n", "3", "; rm -rf /"]),
    ],
)  # fmt: skip
def test_arguments_become_a_command_line(args: Json, command: list[str]) -> None:
    assert script_command("scripts/run.py", **args) == ["python3", "scripts/run.py", *command]


@pytest.mark.parametrize(
    "args", [{"args": "x"}, {"short_options": ["v"]}, {"positional_args": "x"}, {"args": [[1]]}, {"args": {"a": [[1]]}}]
)
async def test_arguments_of_another_shape_are_refused(tmp_path: Path, args: Json) -> None:
    assert (await run_script(tmp_path, "run.py", "print(1)", args)).response["error_code"] == "INVALID_ARGUMENTS"


async def test_a_script_that_takes_too_long_or_cannot_run_is_reported(tmp_path: Path) -> None:
    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        async def run_script(self, **given: Any) -> ScriptResult:
            raise self.error

    args = {"skill_name": "brewing", "file_path": "scripts/run.py"}
    for fault, text in [(TimeoutError(), "300 seconds"), (OSError("no python"), "no python")]:
        toolset = SkillToolset([skill()], script_runner=Failing(fault))
        answer = await ask(toolset, "run_skill_script", args)
        assert answer["error_code"] == "EXECUTION_ERROR"
        assert text in answer["error"]


async def test_a_script_is_stopped_when_its_time_is_up(tmp_path: Path) -> None:
    toolset = with_script(tmp_path, "scripts/run.sh", "exec sleep 60", seconds=0.3)
    answer = await ask(toolset, "run_skill_script", {"skill_name": "brewing", "file_path": "run.sh"})
    assert (answer["error_code"], "0.3 seconds" in answer["error"]) == ("EXECUTION_ERROR", True)


async def test_long_output_is_cut(tmp_path: Path) -> None:
    answer = (await run_script(tmp_path, "run.py", "print('x' * 40000)")).response
    assert answer["stdout"].count("x") == skill_scripts.MAX_OUTPUT_CHARACTERS


async def test_what_a_script_makes_is_saved_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (skill_scripts.MAX_SAVED_BYTES, skill_scripts.MAX_SAVED_BYTES_IN_ALL, skill_scripts.MAX_SAVED_FILES)
    assert limits == (5 * 1024 * 1024, 16 * 1024 * 1024, 50)
    monkeypatch.setattr(skill_scripts, "MAX_SAVED_BYTES", 10)
    monkeypatch.setattr(skill_scripts, "MAX_SAVED_BYTES_IN_ALL", 20)
    monkeypatch.setattr(skill_scripts, "MAX_SAVED_FILES", 3)
    sizes = {"a.txt": 8, "b.csv": 11, "c.txt": 8, "d.txt": 5, "e.txt": 1, "f.txt": 1}
    source = "\n".join(f"open('{name}', 'w').write('x' * {size})" for name, size in sizes.items())
    made = await run_script(tmp_path, "run.py", source)
    answer = made.response
    assert answer["saved_artifacts"] == ["a.txt", "c.txt", "e.txt"]
    assert made.actions.artifact_delta == {"a.txt": 0, "c.txt": 0, "e.txt": 0}
    assert answer["skipped_artifacts"] == [
        {"name": "b.csv", "reason": "larger than 10 bytes"},
        {"name": "d.txt", "reason": "more than 20 bytes in all"},
        {"name": "f.txt", "reason": "more than 3 files"},
    ]
    store = made.talk.runner.artifact_service
    assert store is not None
    part = await store.load_artifact(app_name="app", user_id="ada", session_id="s-1", filename="a.txt")
    assert part is not None
    assert part.inline_data is not None
    assert part.inline_data.data == b"x" * 8


async def test_fifty_files_of_5_mib_at_most_are_saved(tmp_path: Path) -> None:
    source = (
        "for n in range(51): open(f'{n:02}.txt', 'w').write('x')\n"
        "for n in range(2): open(f'0{n}.bin', 'wb').write(bytes(5 * 2**20 + n))\n"
    )
    answer = (await run_script(tmp_path, "run.py", source)).response
    assert answer["saved_artifacts"] == sorted(["00.bin", *(f"{n:02}.txt" for n in range(49))])
    assert answer["skipped_artifacts"] == [
        {"name": "01.bin", "reason": "larger than 5242880 bytes"},
        {"name": "49.txt", "reason": "more than 50 files"},
        {"name": "50.txt", "reason": "more than 50 files"},
    ]


async def test_a_command_line_may_be_given_as_it_is(tmp_path: Path) -> None:
    source = "import sys\nprint(sys.argv[1:])"
    answer = (
        await run_script(tmp_path, "run.py", source, {"args": ["-x", 1, True], "positional_args": ["y"]})
    ).response
    assert answer["stdout"] == "['-x', '1', 'true', 'y']\n"


async def test_without_a_store_nothing_is_saved(tmp_path: Path, tool_context: ToolContext) -> None:
    toolset = with_script(tmp_path, "scripts/run.sh", "echo hi > a.txt")
    (tool,) = [tool for tool in await toolset.get_tools() if tool.name == "run_skill_script"]
    args = {"skill_name": "brewing", "file_path": "run.sh"}
    answer = cast("Json", await tool.run_async(args=args, tool_context=tool_context))
    assert [skipped["name"] for skipped in answer["skipped_artifacts"]] == ["a.txt"]


async def test_scripts_run_in_a_sandbox_unless_the_agent_has_a_code_executor() -> None:
    """As in ADK, the agent's own code executor counts."""
    where = Skill(
        frontmatter=skill().frontmatter,
        instructions="",
        resources={"scripts/where.py": f"import os\nprint(os.path.exists({__file__!r}))"},
    )
    call_it = call("run_skill_script", skill_name="brewing", file_path="where.py")
    sees_this_file: list[str] = []
    for executor in (None, UnsafeLocalCodeExecutor()):
        model = ScriptedModel([call_it, "Done."])
        agent = LlmAgent(name="agent", model=model, tools=[SkillToolset([where])], code_executor=executor)
        events = await Talk(agent).say("go")
        responses = [one.response or {} for event in events for one in event.get_function_responses()]
        sees_this_file += [response["stdout"] for response in responses]
    assert sees_this_file == ["False\n", "True\n"]


async def test_only_scripts_are_not_called_again_after_a_crash() -> None:
    policies = {tool.name: tool.on_interrupt for tool in await SkillToolset([skill()]).get_tools()}
    assert policies == {
        "list_skills": "retry", "load_skill": "retry", "load_skill_resource": "retry", "run_skill_script": "report",
    }  # fmt: skip


# ADK's names, row 7.17


def script_skill() -> Skill:
    script = "import pathlib, sys\nprint(pathlib.Path('references/rules.md').read_text(), *sys.argv[1:])\npathlib.Path('out.txt').write_text('made')\n"
    return Skill(
        frontmatter=Frontmatter(name="brewing", description="Brews."),
        instructions="Run it.",
        resources={"references/rules.md": "Rule 1", "scripts/run.py": script, "scripts/fail.sh": "echo no >&2; exit 3"},
    )


SLOW = Skill(
    frontmatter=Frontmatter(name="brewing", description="Brews."),
    instructions="Wait.",
    resources={"scripts/run.sh": "sleep 20"},
)


@pytest.fixture(params=["environment", "code_executor", "sandbox"])
def runs_scripts(request: pytest.FixtureRequest) -> Json:
    """Arguments of the toolset; none for a sandbox."""
    if request.param == "environment":
        return {"environment": LocalEnvironment()}
    if request.param == "code_executor":
        return {"code_executor": UnsafeLocalCodeExecutor()}
    return {}


async def test_scripts_run_in_an_environment_by_a_code_executor_or_in_a_sandbox(runs_scripts: Json) -> None:
    call_it = {"skill_name": "brewing", "file_path": "scripts/run.py", "args": {"hot": True}}
    answer = await ask(SkillToolset([script_skill()], **runs_scripts), "run_skill_script", call_it)
    assert answer == {
        "skill_name": "brewing",
        "file_path": "scripts/run.py",
        "stdout": "Rule 1 --hot\n",
        "stderr": "",
        "status": "success",
    }
    call_it = {"skill_name": "brewing", "file_path": "scripts/fail.sh"}
    answer = await ask(SkillToolset([script_skill()], **runs_scripts), "run_skill_script", call_it)
    assert (answer["stderr"], answer["status"]) == ("no\n", "error")


async def test_a_script_that_takes_too_long_is_stopped_there_too(runs_scripts: Json) -> None:
    toolset = SkillToolset([SLOW], script_timeout=0.2, **runs_scripts)
    answer = await ask(toolset, "run_skill_script", {"skill_name": "brewing", "file_path": "scripts/run.sh"})
    assert answer["error"] == "Scripts/run.sh was stopped after 0.2 seconds."


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("executor", [None, UnsafeLocalCodeExecutor()], ids=["sandbox", "code executor"])
async def test_output_files_are_saved_if_wanted(saves: bool, executor: UnsafeLocalCodeExecutor | None) -> None:
    toolset = SkillToolset([script_skill()], code_executor=executor, save_output_artifacts=saves)
    answer = await ask(toolset, "run_skill_script", {"skill_name": "brewing", "file_path": "scripts/run.py"})
    assert answer.get("saved_artifacts") == (["out.txt"] if saves else None)


async def test_a_script_cannot_write_artifacts_of_the_users_other_sessions() -> None:
    script = "open('user:profile.txt', 'w').write('1')"
    writes = Skill(frontmatter=skill().frontmatter, instructions="", resources={"scripts/run.py": script})
    toolset = SkillToolset([writes], save_output_artifacts=True)
    answer = await ask(toolset, "run_skill_script", {"skill_name": "brewing", "file_path": "scripts/run.py"})
    assert [skipped["name"] for skipped in answer["skipped_artifacts"]] == ["user:profile.txt"]
    assert "saved_artifacts" not in answer


async def test_an_environment_is_closed_with_the_toolset() -> None:
    environment = LocalEnvironment()
    toolset = SkillToolset([script_skill()], environment=environment, skills_folder="kept")
    await ask(toolset, "run_skill_script", {"skill_name": "brewing", "file_path": "scripts/run.py"})
    assert not environment.is_initialized


async def test_discovery_and_lifecycle_have_adks_names() -> None:
    config = SkillLifecycleConfig(default_mode=SkillLifecycleMode.BOUNDED, max_active_skills=1)
    names = ("brewing", "baking")
    toolset = SkillToolset(
        [skill(name) for name in names], discovery_mode=SkillDiscoveryMode.EAGER, lifecycle_config=config
    )
    calls = await calls_in_a_run(toolset, *(("load_skill", {"skill_name": name}) for name in names))
    assert calls.responses[1]["unloaded_skills"] == ["brewing"]
    assert calls.responses[1]["lifecycle_notice"].startswith("At most 1 skills")
    assert "<name>baking</name>" in calls.requests[0].config.system_text()
    assert {"unload_skill", "list_skills"} & set(calls.requests[0].tools_dict) == {"unload_skill"}
    with pytest.raises(AgentConfigError, match="max_active_skills"):
        SkillLifecycleConfig(max_active_skills=0)


async def test_a_registry_may_describe_its_search() -> None:
    class Cakes(Registry):
        def search_tool_description(self) -> str:
            return "Searches for cakes."

    tools = await offered(SkillToolset([skill()], registry=Cakes()))
    assert tools["search_skills"].description == "Searches for cakes."


async def test_skills_are_loaded_and_listed_without_blocking(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Row 0.12."""
    write(tmp_path, FRONT)
    write(tmp_path, "no header", name="broken")
    assert (await load_skill_from_dir_async(tmp_path / "brewing")).name == "brewing"
    failed: list[str] = []
    found = await list_skills_in_dir_async(tmp_path, lambda name, error: failed.append(f"{name}: {error}"))
    assert {name: header.description for name, header in found.items()} == {"brewing": "Brews."}
    assert len(failed) == 1
    assert failed[0].startswith("broken: Skill 'broken' can't be used")
    assert list(list_skills_in_dir(tmp_path)) == ["brewing"]
    assert list_skills_in_dir(tmp_path / "none") == {}
    assert [one.name for one in await load_skills_from_dir_async(tmp_path)] == ["brewing"]
    assert ["left out" in line or "no folder" in line for line in caplog.messages] == [True, True, True]


@pytest.mark.parametrize("path", ["pptxgenjs.md", "examples/a.md", "examples/deep/b.md", "LICENSE.txt", "SKILL.md"])
@pytest.mark.parametrize("is_zip", [True, False])
async def test_a_model_reads_files_beside_the_standard_folders(tmp_path: Path, path: str, is_zip: bool) -> None:
    text = FRONT if path == "SKILL.md" else "text"
    if is_zip:
        toolset = SkillToolset([load_skill_from_zip(zipped({"SKILL.md": FRONT, path: text}))])
    else:
        file = write(tmp_path, FRONT) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        toolset = SkillToolset(skills_dir=tmp_path)
    args = {"skill_name": "brewing", "file_path": path}
    assert await ask(toolset, "load_skill_resource", args) == {**args, "content": text}


def test_resources_are_the_files_of_the_standard_folders(tmp_path: Path) -> None:
    folder = write(tmp_path, FRONT)
    for path, content in (
        ("references/deep/a.md", b"A"), ("assets/logo.png", b"\x89PNG"), ("scripts/x.py", b"1"), ("notes.md", b"N")
    ):  # fmt: skip
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    for found in (load_skill_from_dir(folder), Skill(frontmatter=FRONTMATTER, instructions="", resources=RESOURCES)):
        resources = found.resources
        assert (resources.list_references(), resources.get_reference("deep/a.md")) == (["deep/a.md"], "A")
        assert (resources.list_assets(), resources.get_asset("logo.png")) == (["logo.png"], b"\x89PNG")
        assert resources.list_scripts() == ["x.py"]
        script = resources.get_script("x.py")
        assert script is not None
        assert script.src == "1"
        assert resources.get_reference("none") is None


FRONTMATTER = Frontmatter(name="brewing", description="Brews.")
RESOURCES = skills.Resources(
    references={"deep/a.md": "A"}, assets={"logo.png": b"\x89PNG"}, scripts={"x.py": skills.Script(src="1")}
)


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, FRONT)
    for number in range(3):
        (folder / f"{number}.md").write_text("x")
    monkeypatch.setattr(skills, "MAX_SKILL_FILES", 3)
    with pytest.raises(OverflowError, match="more than 3 files"):
        load_skill_from_dir(folder).files()
