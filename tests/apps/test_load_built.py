"""Apps from folders, wheels and zip archives."""

from __future__ import annotations

import logging
import stat
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from greenroom.apps.load_built import AgentLoadingProperties, BuiltOutputLoader
from greenroom.errors import AgentConfigError, AppLoadError, AppNotFound, InvalidRequest

AGENT = """
from greenroom import LlmAgent
from {app}.words import WORD
import helper
root_agent = LlmAgent(name="{app}", description=WORD + helper.WORD)
"""


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, empty."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def files(app: str, word: str) -> dict[str, str]:
    return {
        f"{app}/__init__.py": "",
        f"{app}/agent.py": AGENT.format(app=app),
        f"{app}/words.py": f"WORD = {word!r}",
        "helper.py": f"WORD = ' with the helper of {word}'",
    }


def write(folder: Path, contents: Mapping[str, str]) -> Path:
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def archive(path: Path, contents: Mapping[str, str | bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in contents.items():
            opened.writestr(name, data)
    return path


def description(loader: BuiltOutputLoader, app: str) -> str:
    return loader.load(app).root_agent.description


def test_folders_wheels_and_archives_are_looked_through(tmp_path: Path) -> None:
    write(tmp_path / "build/lib", files("in_folder", "a"))
    wheel = {**files("in_wheel", "b"), "in_wheel-1.0.dist-info/METADATA": "Name: in_wheel"}
    archive(tmp_path / "dist/in_wheel-1.0-py3-none-any.whl", wheel)
    archive(tmp_path / "team/dist/some.zip", files("in_zip", "c"))
    archive(tmp_path / "dist/library-2.0-py3-none-any.whl", {"library/__init__.py": ""})
    write(tmp_path / "elsewhere/deeper/dist", files("too_deep", "d"))
    path_before = list(sys.path)
    with BuiltOutputLoader(source_dir=tmp_path) as loader:
        assert loader.list_apps() == ["in_folder", "in_wheel", "in_zip"]
        assert loader.preload() == {}
        assert [description(loader, app) for app in loader.list_apps()] == [
            f"{word} with the helper of {word}" for word in "abc"
        ]
        assert loader.load("in_zip") is loader.load("in_zip")
        assert "helper" not in sys.modules
        assert sys.path == path_before
        with pytest.raises(AppNotFound, match="Known apps: in_folder, in_wheel, in_zip"):
            loader.load("too_deep")


def test_yaml_apps_are_built_too(tmp_path: Path) -> None:
    team = {"root_agent.yaml": "name: team\ninstruction: x\ntools: [{name: .tools.f}]", "tools.py": "def f(): 'x'"}
    archive(tmp_path / "dist/team.zip", team)
    archive(tmp_path / "dist/many.zip", {"other/root_agent.yaml": "name: other\ninstruction: x"})
    with BuiltOutputLoader(source_dir=tmp_path) as loader:
        assert loader.list_apps() == ["other", "team"]
        assert [loader.load(name).root_agent.name for name in loader.list_apps()] == ["other", "team"]


def test_outputs_are_named_by_the_properties(tmp_path: Path) -> None:
    write(tmp_path / "out/here", files("first", "a"))
    single = archive(tmp_path / "single.whl", files("second", "b"))
    elsewhere = write(tmp_path.parent / f"{tmp_path.name}-beside", files("third", "c"))
    for given in (
        {"buildOutputDirs": ["out/here", str(single), str(elsewhere)], "sourceDir": str(tmp_path)},
        {"adk.agents.build-output-dirs": f"out/here,{single},{elsewhere}", "adk.agents.source-dir": str(tmp_path)},
        AgentLoadingProperties(build_output_dirs=["out/here", str(single), str(elsewhere)], source_dir=str(tmp_path)),
    ):
        with BuiltOutputLoader.from_properties(given) as loader:
            assert loader.list_apps() == ["first", "second", "third"]
            assert loader.source_dir == tmp_path
            assert loader.build_output_dirs == [Path("out/here"), single, elsewhere]
    with pytest.raises(InvalidRequest):
        BuiltOutputLoader.from_properties({"sourceDir": 3})
    with pytest.raises(AgentConfigError, match="is not in the source folder"):
        BuiltOutputLoader(build_output_dirs=[elsewhere], source_dir=tmp_path, confine_to_source_dir=True)


def test_a_missing_source_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentConfigError, match="There is no folder"):
        BuiltOutputLoader(source_dir=tmp_path / "nowhere")
    assert BuiltOutputLoader(source_dir=tmp_path).list_apps() == [], "nothing is built yet"


def test_the_later_of_two_apps_of_one_name_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive(tmp_path / "dist/shop-1.0-py3-none-any.whl", files("shop", "old"))
    archive(tmp_path / "dist/shop-1.1-py3-none-any.whl", files("shop", "new"))
    with caplog.at_level(logging.WARNING), BuiltOutputLoader(source_dir=tmp_path) as loader:
        assert description(loader, "shop").startswith("new")
    assert "shop-1.1-py3-none-any.whl replaces that of" in caplog.text


def test_an_app_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    archive(tmp_path / "dist/a.zip", {"broken/agent.py": "1 / 0"})
    archive(tmp_path / "dist/b.zip", files("fine", "b"))
    with BuiltOutputLoader(source_dir=tmp_path) as loader:
        failed = loader.preload()
        assert {name: error.reason for name, error in failed.items()} == {
            "broken": "ZeroDivisionError: division by zero (broken/agent.py:1)"
        }
        assert description(loader, "fine").startswith("b")


# archives that are not what they should be


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _no_archive(path: Path) -> None:
    path.write_text("<html>not found</html>")


def _damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"agent.py") + 12] ^= 0xFF
    path.write_bytes(bytes(data))


def _slip(name: str) -> Callable[[Path], None]:
    return lambda path: void(archive(path, {"shop/agent.py": "", name: "evil"}))


def _link(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as opened:
        entry = zipfile.ZipInfo("shop/link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        opened.writestr(entry, "/etc")


def _bomb(path: Path) -> None:
    archive(path, {"shop/agent.py": "", "shop/zeros": b"\0" * 2_000_000})


def _encrypted(path: Path) -> None:
    data = path.read_bytes()
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.index(signature) + offset
        data = data[:at] + b"\x01\x00" + data[at + 2 :]
    path.write_bytes(data)


def void(_: object) -> None:
    return None


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (_cut, "File is not a zip file"),
    "no archive": (_no_archive, "File is not a zip file"),
    "damaged": (_damaged, ""),
    "above": (_slip("../evil.py"), "its file '../evil.py' leads out of it"),
    "far above": (_slip("shop/../../evil.py"), "its file 'shop/../../evil.py' leads out of it"),
    "absolute": (_slip("/tmp/evil.py"), "its file '/tmp/evil.py' leads out of it"),
    "windows": (_slip("..\\evil.py"), "leads out of it"),
    "drive": (_slip("C:/evil.py"), "its file 'C:/evil.py' leads out of it"),
    "link": (_link, "its file 'shop/link' is a link or a device"),
    "bomb": (_bomb, "it holds more than 1000000 bytes"),
    "encrypted": (_encrypted, "is encrypted"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_archive_says_what_is_wrong(
    tmp_path: Path, temporary: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = archive(tmp_path / "dist/shop-1.0-py3-none-any.whl", files("shop", "a"))
    archive(tmp_path / "dist/fine.zip", files("fine", "b"))
    spoil, reason = SPOILED[how]
    spoil(path)
    with (
        caplog.at_level(logging.ERROR),
        BuiltOutputLoader(source_dir=tmp_path, max_unpacked_bytes=1_000_000) as loader,
    ):
        assert loader.list_apps() == ["fine", "shop"]
        with pytest.raises(AppLoadError) as caught:
            loader.load("shop")
        assert caught.value.reason.startswith("the archive shop-1.0-py3-none-any.whl can't be used: ")
        assert reason in caught.value.reason
        assert description(loader, "fine").startswith("b")
        assert list(temporary.rglob("fine"))
        assert not list(temporary.rglob("*evil*"))
    assert str(path) in caplog.text
    assert not list(tmp_path.rglob("*evil*"))


def test_what_was_unpacked_is_private_and_taken_away(tmp_path: Path, temporary: Path) -> None:
    archive(tmp_path / "dist/shop.whl", files("shop", "a"))
    loader = BuiltOutputLoader(source_dir=tmp_path)
    (unpacked,) = temporary.iterdir()
    assert stat.S_IMODE(unpacked.stat().st_mode) == 0o700
    app = loader.load("shop")
    loader.close()
    assert not unpacked.exists()
    assert app.root_agent.name == "shop"
    with pytest.raises(AppLoadError, match="was closed"):
        loader.load("shop")
    loader.close()


def test_nothing_is_unpacked_for_folders(tmp_path: Path, temporary: Path) -> None:
    write(tmp_path / "dist", files("shop", "a"))
    with BuiltOutputLoader(source_dir=tmp_path) as loader:
        assert description(loader, "shop").startswith("a")
        assert list(temporary.iterdir()) == []


def test_the_loader_that_is_forgotten_takes_its_files_away(tmp_path: Path, temporary: Path) -> None:
    archive(tmp_path / "dist/shop.whl", files("shop", "a"))
    loader = BuiltOutputLoader(source_dir=tmp_path)
    (unpacked,) = temporary.iterdir()
    del loader
    assert not unpacked.exists()
