"""From a URI to the artifact store it names."""

from __future__ import annotations

from greenroom.artifacts.service import BaseArtifactService
from greenroom.errors import InvalidRequest

_OBJECT_STORES = ("file", "s3", "gs", "az")
_KNOWN = "memory://, file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"


def artifact_service_from_uri(uri: str) -> BaseArtifactService:
    """The store for a URI; a local folder is made when it is missing. Raises InvalidRequest."""
    scheme, separator, rest = uri.partition("://")
    if scheme == "memory" and separator and not rest.strip("/"):
        from greenroom.artifacts.in_memory import InMemoryArtifactService

        return InMemoryArtifactService()
    if scheme in _OBJECT_STORES and separator:
        from greenroom.artifacts.object_store import ObjectStoreArtifactService

        return ObjectStoreArtifactService(uri)
    raise InvalidRequest(f"No artifact store is known for {uri!r}. Known: {_KNOWN}", location=("uri",))
