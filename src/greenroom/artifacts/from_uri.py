"""Opens the artifact store that a URI names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.encryption.key_provider import KeyProvider
from greenroom.errors import InvalidRequest
from greenroom.records.service_uri import contributed_service, without_password

_OBJECT_STORES = ("s3", "gs", "az")
_KNOWN = "memory://, file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"


def artifact_service_from_uri(uri: str, *, keys: KeyProvider | None = None) -> BaseArtifactService:
    """The store for a URI; a local folder is made when it is missing. keys: encrypt what is stored.

    Raises InvalidRequest, MissingExtra.
    """
    store = _store_of(uri)
    if keys is None or isinstance(store, InMemoryArtifactService):
        return store
    from greenroom.artifacts.encrypted import EncryptedArtifactService

    return EncryptedArtifactService(store, keys)


def _store_of(uri: str) -> BaseArtifactService:
    scheme, separator, rest = uri.partition("://")
    if scheme == "memory" and separator and not rest.strip("/"):
        return InMemoryArtifactService()
    if scheme == "file" and separator:
        from greenroom.artifacts.files import FileArtifactService

        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidRequest(
                f"A folder is written file:///its/absolute/path, not {without_password(uri)!r}", location=("uri",)
            )
        return FileArtifactService(unquote(parts.path))
    if scheme in _OBJECT_STORES and separator:
        from greenroom.artifacts.object_store import ObjectStoreArtifactService

        return ObjectStoreArtifactService(uri)
    return contributed_service(uri, "artifact", known=_KNOWN)
