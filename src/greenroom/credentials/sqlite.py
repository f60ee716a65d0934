"""Credentials in a SQLite file, the same as the sessions' or another. Not encrypted: protect the file."""

from __future__ import annotations

import os

from greenroom.credentials.sql import SqlCredentialService
from greenroom.sqlite.database import Database


class SqliteCredentialService(SqlCredentialService):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file on the first call."""
        super().__init__(Database.open(path))
