"""What is known of a stored artifact beside its bytes."""

from __future__ import annotations

import msgspec

from greenroom.records.base import JsonObject, Record, empty_map


class ArtifactVersion(Record, kw_only=True):
    """version: from 0, one more with each save. create_time: Unix seconds."""

    version: int
    canonical_uri: str
    custom_metadata: JsonObject = msgspec.field(default_factory=empty_map)
    create_time: float
    mime_type: str | None = None
