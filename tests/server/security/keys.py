"""Servers that ask for keys, and the keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from greenroom.server.api_keys import ApiKeyFile
from greenroom.server.settings import AuthSettings


class Keys:
    """A file of keys. Calling it makes a key."""

    def __init__(self, path: Path) -> None:
        self.file = ApiKeyFile(path)
        self("nobody")

    @property
    def auth(self) -> AuthSettings:
        return AuthSettings(keys=str(self.file.path))

    def __call__(self, subject: str, *scopes: str, apps: Iterable[str] | None = None) -> str:
        return self.file.create(name="test", subject=subject, scopes=scopes, apps=apps)[1]

    def revoke(self, key: str) -> None:
        self.file.revoke(key.split("_")[1])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
