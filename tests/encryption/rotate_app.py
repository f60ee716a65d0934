"""Encrypts the rows of a database again: `python -m tests.encryption.rotate_app URI KEY_FILE`."""

from __future__ import annotations

import asyncio
import sys

from greenroom.cli.encryption import encrypt_rows
from greenroom.encryption.codec import EncryptingCodec
from greenroom.encryption.local_keys import keys_of_file
from greenroom.postgres.database import Database as PostgresDatabase
from greenroom.sqlite.database import Database


async def rotate(uri: str, key_file: str) -> int:
    """Returns the number of values that were encrypted again."""
    database: Database | PostgresDatabase
    if uri.startswith("sqlite:///"):
        database = Database.open(uri.removeprefix("sqlite:///"))
    else:
        database = PostgresDatabase.open(uri)
    database.encrypt(keys_of_file(key_file))
    assert isinstance(database.codec, EncryptingCodec)
    try:
        return await encrypt_rows(database, database.codec, settle_seconds=0.1)
    finally:
        await database.close()


if __name__ == "__main__":
    print(asyncio.run(rotate(sys.argv[1], sys.argv[2])))
