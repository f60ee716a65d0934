"""Servers that ask for keys, and the keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from greenroom.records.access import Role, ServiceAccount
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.access.api_keys import new_key
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

    def fill(self, name: str) -> str:
        """Makes a key, a service account and a role for the app `echo`. Returns the key's id."""
        account = ServiceAccount(name="ci", created_at=0.0, apps=["echo"], description=name)
        made, _ = new_key(name=name, subject="ann", scopes=["run"], apps=["echo"])
        self.file.change(
            lambda records: (
                records.with_account(account)
                .with_role(Role(name="support", description=name, scopes=["app:echo"]))
                .with_key(made)
            )
        )
        return made.id

    def revoke(self, key: str) -> None:
        self.file.revoke(key.split("_")[1])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
