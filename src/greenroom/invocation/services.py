"""The stores that a run works with."""

from __future__ import annotations

from dataclasses import dataclass

from greenroom.artifacts.service import BaseArtifactService
from greenroom.memory.service import BaseMemoryService
from greenroom.sessions.service import BaseSessionService


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    sessions: BaseSessionService
    artifacts: BaseArtifactService | None = None
    memory: BaseMemoryService | None = None
