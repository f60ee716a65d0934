"""Services as programs for ADK write them: with ADK's abstract methods, and no others."""

from __future__ import annotations

import copy
import uuid
from typing import Any

from greenroom import (
    AuthConfig,
    AuthCredential,
    BaseArtifactService,
    BaseCredentialService,
    BaseMemoryService,
    BaseSessionService,
    CallbackContext,
    Event,
    MemoryEntry,
    Session,
    types,
)
from greenroom.records.listings import ArtifactVersion, SearchMemoryResponse
from greenroom.records.session import GetSessionConfig, ListSessionsResponse

# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false


class AdkSessions(BaseSessionService):
    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str, str], Session] = {}

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        new_id = session_id or str(uuid.uuid4())
        session = Session(id=new_id, app_name=app_name, user_id=user_id, state=dict(state or {}))
        self.sessions[app_name, user_id, new_id] = session
        return copy.deepcopy(session)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        session = copy.deepcopy(self.sessions.get((app_name, user_id, session_id)))
        if session is not None and config is not None and config.num_recent_events:
            session.events = session.events[-config.num_recent_events :]
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        found = [
            copy.deepcopy(session)
            for (app, user, _), session in self.sessions.items()
            if app == app_name and user_id in (None, user)
        ]
        for session in found:
            session.events = []
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        self.sessions.pop((app_name, user_id, session_id), None)

    async def append_event(self, session: Session, event: Event) -> Event:
        event = await super().append_event(session, event)
        stored = self.sessions[session.app_name, session.user_id, session.id]
        if not event.partial:
            stored.events.append(copy.deepcopy(event))
            stored.state.update(event.actions.state_delta)
            stored.last_update_time = event.timestamp
        return event


class AdkArtifacts(BaseArtifactService):
    def __init__(self) -> None:
        self.parts: dict[tuple[str, str, str | None, str], list[types.Part]] = {}

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part,
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        versions = self.parts.setdefault((app_name, user_id, session_id, filename), [])
        versions.append(artifact)
        return len(versions) - 1

    async def load_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None, version: int | None = None
    ) -> types.Part | None:
        versions = self.parts.get((app_name, user_id, session_id, filename))
        if not versions:
            return None
        return versions[-1 if version is None else version]

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        return sorted(key[3] for key in self.parts if key[:3] == (app_name, user_id, session_id))

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        self.parts.pop((app_name, user_id, session_id, filename), None)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        return list(range(len(self.parts.get((app_name, user_id, session_id, filename), []))))

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        versions = await self.list_versions(
            app_name=app_name, user_id=user_id, filename=filename, session_id=session_id
        )
        return [ArtifactVersion(version=n, canonical_uri=f"mine://{filename}/{n}", create_time=1.0) for n in versions]

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None, version: int | None = None
    ) -> ArtifactVersion | None:
        all_versions = await self.list_artifact_versions(
            app_name=app_name, user_id=user_id, filename=filename, session_id=session_id
        )
        if not all_versions:
            return None
        return all_versions[-1 if version is None else version]


class AdkMemory(BaseMemoryService):
    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str, str], Session] = {}

    async def add_session_to_memory(self, session: Session) -> None:
        self.sessions[session.app_name, session.user_id, session.id] = session

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        contents = [
            event.content
            for (app, user, _), session in self.sessions.items()
            if (app, user) == (app_name, user_id)
            for event in session.events
            if event.content is not None and query.lower() in event.content.text().lower()
        ]
        return SearchMemoryResponse(memories=[MemoryEntry(content=content) for content in contents])


class AdkCredentials(BaseCredentialService):
    def __init__(self) -> None:
        self.credentials: dict[tuple[str, str, str | None], AuthCredential | None] = {}

    async def load_credential(
        self, auth_config: AuthConfig, callback_context: CallbackContext
    ) -> AuthCredential | None:
        return self.credentials.get((*self._owner(callback_context), auth_config.credential_key))

    async def save_credential(self, auth_config: AuthConfig, callback_context: CallbackContext) -> None:
        key = (*self._owner(callback_context), auth_config.credential_key)
        self.credentials[key] = auth_config.exchanged_auth_credential

    def _owner(self, context: CallbackContext) -> tuple[str, str]:
        invocation = context._invocation_context
        return invocation.app_name, invocation.user_id
