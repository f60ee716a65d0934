"""Servers that ask for keys, and the keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from greenroom.server.access.api_keys import ApiKeyFile
from greenroom.server.settings import AuthSettings


class Keys:
    """A file of keys. Calling it makes a key, the first time that one of these is asked for."""

    def __init__(self, path: Path) -> None:
        self.file = ApiKeyFile(path)
        self._made: dict[tuple[object, ...], str] = {}
        self("nobody")

    @property
    def auth(self) -> AuthSettings:
        return AuthSettings(keys=str(self.file.path))

    def __call__(self, subject: str, *scopes: str, apps: Iterable[str] | None = None) -> str:
        wanted = (subject, scopes, None if apps is None else frozenset(apps))
        if wanted not in self._made:
            self._made[wanted] = self.file.create(name="test", subject=subject, scopes=scopes, apps=apps)[1]
        return self._made[wanted]

    def revoke(self, key: str) -> None:
        self.file.revoke(key.split("_")[1])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
