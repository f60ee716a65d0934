"""Creates the memory store that a URI names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.encryption.from_uri import not_encrypted
from greenroom.encryption.key_provider import KeyProvider
from greenroom.memory.service import BaseMemoryService
from greenroom.records.service_uri import contributed_service

if TYPE_CHECKING:
    from greenroom.embeddings.embeddings import BaseEmbeddings

_KNOWN = (
    "memory://, sqlite:///file.db, postgresql://host/database, firestore://project/database, agentengine://ID, "
    "rag://CORPUS"
)


def memory_service_from_uri(
    uri: str, *, embeddings: BaseEmbeddings | None = None, keys: KeyProvider | None = None
) -> BaseMemoryService:
    """Opens the memory service of a URI. `embeddings` are for stores that support them. Raises InvalidRequest for an
    unknown URI. keys: encrypt what is stored, in SQLite and PostgreSQL; other stores are refused with them.
    """
    scheme, separator, rest = uri.partition("://")
    kind = scheme.partition("+")[0].lower() if separator else ""
    path = rest.partition("?")[0].removeprefix("/")
    if (kind == "memory" and not path) or (kind == "sqlite" and path in ("", ":memory:")):
        from greenroom.memory.in_memory import InMemoryMemoryService

        return InMemoryMemoryService()
    if kind == "sqlite" and rest.startswith("/"):
        from greenroom.memory.sqlite import SqliteMemoryService

        return SqliteMemoryService(path, embeddings=embeddings, keys=keys)
    if kind in ("postgresql", "postgres"):
        from greenroom.memory.postgres import PostgresMemoryService

        return PostgresMemoryService(uri, embeddings=embeddings, keys=keys)
    if keys is not None:
        raise not_encrypted(uri)
    if kind == "firestore":
        from greenroom.google_cloud.firestore import FirestoreDatabase
        from greenroom.memory.firestore import FirestoreMemoryService

        return FirestoreMemoryService(database=FirestoreDatabase.from_uri(uri))
    if kind in ("agentengine", "vertexai", "rag"):
        from greenroom.google_cloud.vertex import resource_of_uri
        from greenroom.memory.vertex import VertexAiMemoryBankService, VertexAiRagMemoryService

        resource = resource_of_uri(uri)
        return (
            VertexAiRagMemoryService(resource) if kind == "rag" else VertexAiMemoryBankService(agent_engine_id=resource)
        )
    return contributed_service(uri, "memory", known=_KNOWN)
