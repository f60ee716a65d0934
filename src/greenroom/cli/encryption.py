"""`greenroom encryption`: the keys that encrypt a server's data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir
from greenroom.cli.terminal import note
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.encryption.codec import EncryptingCodec
    from greenroom.encryption.key_provider import KeyProvider
    from greenroom.encryption.rotation import Database
    from greenroom.server.settings import ServeSettings

app = App(name="encryption", help="Make and rotate the keys that encrypt what a server stores.")


@app.command(name="keygen")
def make_key(file: Annotated[Path, Parameter(name="FILE")], /) -> None:
    """Add a key to a file, which only you can read, and make it the current one. The file is made if it is missing.

    Keep a copy of the file elsewhere: without its keys, the data is lost. Running servers read the file again.

        greenroom encryption keygen keys.toml
    """
    from greenroom.encryption.local_keys import add_key

    key_id = add_key(str(file))
    note(f'{file} has the new key {key_id}. Set encryption.keys = "{file.absolute().as_uri()}"')


@app.command
def rotate(agents_dir: AgentsDir = Path(), /, *, data: bool = False) -> None:
    """Wrap the data keys of a server's stores with the current key of the setting `encryption.keys`.

    Servers may run meanwhile. After it, earlier keys of the file are needed for backups only.

        greenroom encryption rotate agents

        greenroom encryption rotate agents --data

    Parameters
    ----------
    data
        Make new data keys, too, and encrypt the rows of the databases with them, also those that were stored before
        encryption was turned on. It takes a while; interrupted, the next call continues.
    """
    from greenroom.cli.serving import key_provider, read_configuration

    settings = read_configuration(agents_dir, None, {}).settings
    keys = key_provider(settings.encryption.keys)
    if keys is None:
        raise CallerError("No keys are configured: set encryption.keys")
    asyncio.run(_rotate(agents_dir, settings, keys, with_data=data))


async def _rotate(agents_dir: Path, settings: ServeSettings, keys: KeyProvider, *, with_data: bool) -> None:
    sessions_uri = settings.session_service or data_folder.session_service_uri(agents_dir)
    uris = list(dict.fromkeys((sessions_uri, settings.memory_service or sessions_uri)))
    for uri in uris:
        await _rotate_database(uri, keys, with_data=with_data)
    await _rotate_artifacts(
        settings.artifact_service or data_folder.artifact_service_uri(agents_dir), keys, with_data=with_data
    )


async def _rotate_database(uri: str, keys: KeyProvider, *, with_data: bool) -> None:
    from greenroom.encryption.codec import EncryptingCodec
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sessions.from_uri import session_service_from_uri
    from greenroom.sessions.postgres import PostgresSessionService
    from greenroom.sessions.sqlite import SqliteSessionService
    from greenroom.sqlite.database import Database as SqliteDatabase

    service = session_service_from_uri(uri, keys=keys)
    if isinstance(service, SqliteSessionService):
        database: SqliteDatabase | PostgresDatabase = SqliteDatabase.open(service.path)
    elif isinstance(service, PostgresSessionService):
        database = PostgresDatabase.open(service.uri)
    else:
        await service.close()
        return

    async with data_folder.closing(database, service):
        await service.load_keys()
        codec = database.codec
        assert isinstance(codec, EncryptingCodec)
        count = await codec.ring.rewrap()
        note(f"{codec.ring.store.name}: {count} data keys wrapped with the current key")
        if with_data:
            rows = await encrypt_rows(database, codec)
            note(f"{codec.ring.store.name}: {rows} values encrypted with a new data key")


async def encrypt_rows(database: Database, codec: EncryptingCodec, *, settle_seconds: float | None = None) -> int:
    """Encrypts the rows of a database with a new data key. Returns their number."""
    from greenroom.encryption.columns import POSTGRES_COLUMNS, SQLITE_COLUMNS
    from greenroom.encryption.key_ring import REFRESH_SECONDS
    from greenroom.encryption.rotation import Rotation
    from greenroom.memory.entries import words_of_entry
    from greenroom.records import wire
    from greenroom.records.listings import MemoryEntry
    from greenroom.sqlite.database import Database as SqliteDatabase

    read_entry = wire.decoder(MemoryEntry)
    is_file = isinstance(database, SqliteDatabase)
    rotation = Rotation(
        database,
        codec,
        SQLITE_COLUMNS if is_file else POSTGRES_COLUMNS,
        words_of_memory=lambda data: words_of_entry(read_entry(data)),
        settle_seconds=REFRESH_SECONDS + 2 if settle_seconds is None else settle_seconds,
    )
    if is_file:
        # What is replaced is overwritten in the file, too.
        await database.submit(lambda cursor: cursor.execute("PRAGMA secure_delete = ON") and None)
    else:
        await database.execute(_DROP_VECTORS)
    await rotation.run()
    return rotation.rows


_DROP_VECTORS = "DROP TABLE IF EXISTS memory_vectors"
"""pgvector can't search encrypted vectors, and plain ones say what the memories are about."""


async def _rotate_artifacts(uri: str, keys: KeyProvider, *, with_data: bool) -> None:
    from greenroom.artifacts.encrypted import EncryptedArtifactService
    from greenroom.artifacts.from_uri import artifact_service_from_uri

    artifacts = artifact_service_from_uri(uri, keys=keys)
    if not isinstance(artifacts, EncryptedArtifactService):
        return
    async with data_folder.closing(artifacts):
        count = await artifacts.ring.rewrap()
        note(f"artifacts: {count} data keys wrapped with the current key")
        if with_data:
            await artifacts.ring.add_data_key()
            note("artifacts: new ones are encrypted with a new data key")
