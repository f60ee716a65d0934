"""A container image made of this machine's own files, since no registry can be reached in the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.requirements import skip_or_fail

_COMMANDS = """
    sh cat chmod chown cp dd df echo env find grep head id kill ln ls mkdir mknod mount mv ps rm sed setsid sleep sort su
    sudo tail tar touch true uname unshare wc yes
"""
_LIBRARIES_OF_WHEELS = (
    "libdl.so.2",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
)
"""Those that the rules of manylinux allow, as far as packages of ours use them, and the one that xllamacpp expects."""

_FOLDERS = ("dev", "proc", "sys", "etc", "usr", "usr/bin")
_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "tkinter",
    "turtledemo",
}


def write_root_file_system(path: Path, *, with_python: bool = True, with_pip: bool = False) -> None:
    """Writes a tar file of some 50 MB with the shell, a few commands, and this machine's Python as `python3`.

    with_pip: with the libraries, too, that wheels expect.
    """
    standard_library = Path(sysconfig.get_path("stdlib"))
    commands = {name: Path(found).resolve() for name in _COMMANDS.split() if (found := shutil.which(name))}
    extensions: list[Path] = []
    if with_python:
        commands["python3"] = Path(
            sysconfig.get_config_var("BINDIR"), f"python{sysconfig.get_python_version()}"
        ).resolve()
        extensions = list((standard_library / "lib-dynload").glob("*.so"))

    with tarfile.open(path, "w") as tar:
        for folder in _FOLDERS:
            _add_folder(tar, folder, 0o755)
        _add_folder(tar, "tmp", 0o1777)
        _add_link(tar, "bin", "usr/bin")

        for program in set(commands.values()):
            tar.add(program)
        for name, program in commands.items():
            if str(program) != f"/usr/bin/{name}":
                _add_link(tar, f"usr/bin/{name}", str(program))
        libraries = set(_libraries(*commands.values(), *extensions))
        if with_pip:
            libc = next(library for library in libraries if library.name.startswith("libc.so"))
            libraries |= {libc.with_name(name) for name in _LIBRARIES_OF_WHEELS if libc.with_name(name).exists()}
        for library in sorted(libraries):
            tar.add(library.resolve(), arcname=str(library))
        if Path("/etc/ld.so.cache").exists():
            tar.add("/etc/ld.so.cache")
        if with_python:
            tar.add(standard_library, filter=_without_extras)
        if with_pip:
            with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(_pip_wheel(standard_library)) as wheel:
                wheel.extractall(folder)
                for entry in Path(folder).iterdir():
                    tar.add(entry, arcname=str(standard_library / entry.name))


def _pip_wheel(standard_library: Path) -> Path:
    """The wheel that `python -m venv` installs."""
    folders = (standard_library / "ensurepip" / "_bundled", Path("/usr/share/python-wheels"))
    wheels = [wheel for folder in folders for wheel in folder.glob("pip-*.whl")]
    return (
        wheels[0] if wheels else skip_or_fail("Python's module ensurepip is missing; Debian's package is python3-venv")
    )


def _libraries(*programs: Path) -> list[Path]:
    """The shared libraries that they load, with the loader itself."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    return [Path(name) for name in sorted(set(re.findall(r"(/\S+\.so\S*) \(0x", listed)))]


def _add_folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE
    entry.mode = mode
    tar.addfile(entry)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.SYMTYPE
    entry.linkname = target
    tar.addfile(entry)


def _without_extras(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = os.path.basename(entry.name)
    if name in _LEFT_OUT or name.startswith("config-") or name.endswith((".opt-1.pyc", ".opt-2.pyc", ".a")):
        return None
    return entry
