"""Credentials in a PostgreSQL database, the same as the sessions' or another. Not encrypted: protect the database."""

from __future__ import annotations

from greenroom.credentials.sql import SqlCredentialService
from greenroom.postgres.database import Database


class PostgresCredentialService(SqlCredentialService):
    def __init__(self, uri: str) -> None:
        """Connects on the first call. Raises MissingExtra."""
        super().__init__(Database.open(uri))
