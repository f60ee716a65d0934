"""The stores and the default model that a run works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.memory.service import BaseMemoryService
from greenroom.models.model import BaseLlm
from greenroom.sessions.service import BaseSessionService


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    sessions: BaseSessionService
    artifacts: BaseArtifactService | None = None
    memory: BaseMemoryService | None = None
    credentials: BaseCredentialService = field(default_factory=InMemoryCredentialService)
    default_model: str | BaseLlm = ""
