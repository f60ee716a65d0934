"""The default folder of a server's data: `.greenroom` in the agents folder."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol

from greenroom.errors import CallerError


def database_path(agents_dir: Path) -> Path:
    return _folder(agents_dir) / "greenroom.db"


def session_service_uri(agents_dir: Path) -> str:
    return f"sqlite:///{database_path(agents_dir)}"


def artifact_service_uri(agents_dir: Path) -> str:
    return (_folder(agents_dir) / "artifacts").as_uri()


def keys_path(agents_dir: Path) -> Path:
    return _folder(agents_dir) / "keys.db"


def make(agents_dir: Path) -> None:
    """Creates the folder, ignored by git. Raises CallerError."""
    folder = _folder(agents_dir)
    try:
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise CallerError(
            f"Can't store data in {folder} ({error.strerror}). "
            "Choose other stores with --session-service and --artifact-service"
        ) from error


def _folder(agents_dir: Path) -> Path:
    return agents_dir.expanduser().resolve() / ".greenroom"


class Closable(Protocol):
    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def closing(*opened: Closable) -> AsyncGenerator[None]:
    """Closes stores, clients and models, in this order, when the block ends."""
    try:
        yield
    finally:
        for one in opened:
            await one.close()
