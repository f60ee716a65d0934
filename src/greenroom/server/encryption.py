"""Opens the stores of a server with their encryption keys, before anything is written to them."""

from __future__ import annotations

import asyncio
import contextlib

from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.encryption.encrypted_store import EncryptedStore
from greenroom.errors import KeyRefused, StorageError
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.memory.service import BaseMemoryService
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService

_Store = BaseSessionService | BaseArtifactService | BaseMemoryService | BaseCredentialService
_TIMEOUT_SECONDS = 2.0
_IN_MEMORY = (InMemorySessionService, InMemoryArtifactService, InMemoryMemoryService, InMemoryCredentialService)


async def open_stores(
    sessions: BaseSessionService,
    artifacts: BaseArtifactService,
    memory: BaseMemoryService,
    credentials: BaseCredentialService,
    *,
    encrypts: bool,
) -> None:
    """Loads the keys of the stores.

    encrypts: True if all of them must be encrypted. Raises KeyRefused for a store that isn't, or can't be; for one that
    is encrypted, and was given no keys; and for wrong keys.
    """
    if not encrypts:
        if isinstance(sessions, EncryptedStore):
            await sessions.load_keys()
        await _check_plain(artifacts)
        return

    stores: tuple[_Store, ...] = (sessions, artifacts, memory, credentials)
    on_disk = [store for store in stores if not isinstance(store, _IN_MEMORY)]
    for store in on_disk:
        if not isinstance(store, EncryptedStore) or not store.is_encrypted:
            raise KeyRefused(f"encryption.keys is set, and {type(store).__name__} has no keys, or can't encrypt")
    for store in on_disk:
        if isinstance(store, EncryptedStore):
            await store.load_keys()


async def _check_plain(artifacts: BaseArtifactService) -> None:
    """Raises KeyRefused for a store that is encrypted. One that doesn't answer in time is no reason not to start."""
    if isinstance(artifacts, EncryptedStore | InMemoryArtifactService):
        return
    from greenroom.artifacts.encrypted import has_keys

    is_encrypted = False
    with contextlib.suppress(TimeoutError, StorageError):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            is_encrypted = await has_keys(artifacts)
    if is_encrypted:
        raise KeyRefused("the artifacts are encrypted, and no keys are given: set encryption.keys")
