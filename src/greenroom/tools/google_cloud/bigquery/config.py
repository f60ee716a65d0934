"""Settings of BigQuery's tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig

MIN_BYTES_BILLED = 10 * 1024 * 1024
MAX_JOB_LABELS = 20
RESERVED_LABELS = "adk-bigquery-"
_KMS_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")


class WriteMode(Enum):
    """The statements that SQL may have."""

    BLOCKED = "blocked"
    """Nothing: only what a dry run reports as SELECT is executed."""
    PROTECTED = "protected"
    """Temporary tables and models of a BigQuery session, which is made for each conversation."""
    ALLOWED = "allowed"
    """Everything that the credentials allow."""


@dataclass(kw_only=True)
class BigQueryToolConfig:
    """Raises ValueError."""

    write_mode: WriteMode = WriteMode.BLOCKED
    maximum_bytes_billed: int | None = None
    """Queries that would be billed for more fail. At least 10 MiB, the minimum that BigQuery bills."""
    max_query_result_rows: int = 50
    """More rows of a result are left out."""
    application_name: str | None = None
    """Named in the user agent and in a label of each job; without blanks."""
    compute_project_id: str | None = None
    """The only project in which queries may be executed."""
    default_project_id: str | None = None
    """The project of calls in which the model names none."""
    default_dataset_id: str | None = None
    """The dataset of calls in which the model names none."""
    location: str | None = None
    """The location that queries are executed in; by default that of the data."""
    job_labels: Mapping[str, str] | None = None
    """At most 20, added to the labels of each job."""
    kms_key_name: str | None = None
    """The key that encrypts results of SELECT: `projects/…/locations/…/keyRings/…/cryptoKeys/…`."""

    def __post_init__(self) -> None:
        self.write_mode = WriteMode(self.write_mode)
        if self.maximum_bytes_billed and self.maximum_bytes_billed < MIN_BYTES_BILLED:
            raise ValueError(f"maximum_bytes_billed must be at least {MIN_BYTES_BILLED}, the minimum that is billed")
        if " " in (self.application_name or ""):
            raise ValueError("application_name must not contain blanks")
        if self.kms_key_name is not None and not _KMS_KEY.fullmatch(self.kms_key_name):
            raise ValueError(f"kms_key_name is not the resource name of a Cloud KMS key: {self.kms_key_name!r}")
        self._check_labels()
        if self.default_project_id and self.compute_project_id not in (None, self.default_project_id):
            raise ValueError(
                f"default_project_id {self.default_project_id!r} differs from compute_project_id "
                f"{self.compute_project_id!r}, so that queries without a project would be refused"
            )

    def _check_labels(self) -> None:
        labels = self.job_labels or {}
        if len(labels) > MAX_JOB_LABELS:
            raise ValueError(f"job_labels has {len(labels)} labels; at most {MAX_JOB_LABELS} are possible")
        for key in labels:
            if not key or key.startswith(RESERVED_LABELS):
                raise ValueError(f"job_labels: {key!r} is empty or begins with the reserved {RESERVED_LABELS!r}")


@dataclass(kw_only=True)
class BigQueryCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of BigQuery's tools."""

    default_scopes: ClassVar[tuple[str, ...]] = (
        "https://www.googleapis.com/auth/bigquery",
        "https://www.googleapis.com/auth/dataplex.read-write",
    )
