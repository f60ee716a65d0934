"""The operations that Google Cloud's tools may do."""

from __future__ import annotations

from enum import Enum


class Capabilities(Enum):
    """READ_ONLY and READ_WRITE are of Cloud Storage's settings, DATA_READ of Spanner's."""

    READ_ONLY = "read_only"
    READ_WRITE = "read_write"
    DATA_READ = "data_read"
