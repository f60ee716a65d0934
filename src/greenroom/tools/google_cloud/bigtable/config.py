"""Settings of Bigtable's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig


@dataclass(kw_only=True)
class BigtableCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of Bigtable's tools."""

    default_scopes: ClassVar[tuple[str, ...]] = (
        "https://www.googleapis.com/auth/bigtable.admin",
        "https://www.googleapis.com/auth/bigtable.data",
    )


@dataclass(kw_only=True)
class BigtableToolSettings:
    """Settings of Bigtable's tools."""

    max_query_result_rows: int = 50
    """More rows of a result are left out."""

    @property
    def max_rows(self) -> int:
        """A limit that is no limit is the default."""
        return self.max_query_result_rows if self.max_query_result_rows > 0 else 50
