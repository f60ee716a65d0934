"""Settings of Eventarc's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig


@dataclass(kw_only=True)
class EventarcCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of Eventarc's tools."""

    default_scopes: ClassVar[tuple[str, ...]] = ("https://www.googleapis.com/auth/cloud-platform",)


@dataclass(kw_only=True)
class EventarcToolConfig:
    """Settings of Eventarc's tools."""

    project_id: str | None = None
    """Not needed: the name of a bus has its project."""
    publish_timeout: float = 15.0
    """In seconds."""
