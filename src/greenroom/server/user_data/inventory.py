"""The data that the stores of a server have of a user in an app, by kind and in pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from greenroom.artifacts.service import USER_NAMESPACE, ArtifactContent, BaseArtifactService
from greenroom.audit.store import AuditStore
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import InvalidRequest, NotOffered
from greenroom.memory.service import BaseMemoryService
from greenroom.records.audit import AuditEntry, AuditFilter
from greenroom.records.auth import GrantedLogin
from greenroom.records.base import JsonObject
from greenroom.records.feedback import Feedback, FeedbackFilter
from greenroom.records.inbox import HumanRequest, RequestFilter
from greenroom.records.listings import ArtifactVersion, MemoryEntry
from greenroom.records.run import Run, RunFilter
from greenroom.records.schedule import Schedule
from greenroom.records.session import Session
from greenroom.records.usage import UsageSum
from greenroom.records.user_data import OwnAnswer, UserDataKind
from greenroom.runs.engine import RunEngine
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.span_record import SpanRecord
from greenroom.traces.store import TraceStore

T = TypeVar("T")

PAGE = 100
"""Number of records that are read at once."""

_NO_SESSION = "-"
"""An id in place of a session's, for artifacts that belong to none."""

Page = tuple[Sequence[T], str | None]
"""The items, and the token of the next page."""


class StoredArtifact(NamedTuple):
    """A version of an artifact of a user."""

    session_id: str | None
    """None if it belongs to all the user's sessions."""
    filename: str
    version: ArtifactVersion


@dataclass(kw_only=True, eq=False)
class UserData:
    """The data of one user in one app.

    audit: None where the audit trail is off. Stores that can't list something raise NotOffered.
    """

    app_name: str
    user_id: str
    engine: RunEngine
    session_service: BaseSessionService
    artifact_service: BaseArtifactService
    memory_service: BaseMemoryService
    credential_service: BaseCredentialService
    trace_store: TraceStore
    audit: AuditStore | None

    @property
    def owner(self) -> dict[str, str]:
        """The app and the user, as arguments of the services."""
        return {"app_name": self.app_name, "user_id": self.user_id}

    async def count(self) -> tuple[dict[UserDataKind, int], dict[UserDataKind, str]]:
        """The number of items by kind, and the reasons why some can't be counted."""
        counts: dict[UserDataKind, int] = dict.fromkeys(("sessions", "events", "spans", "state"), 0)
        missing: dict[UserDataKind, str] = {}
        async for session in self.sessions():
            counts["sessions"] += 1
            log = await self.session_service.list_events(**session.key._asdict(), after=0, limit=1)
            counts["events"] += log.last_seq
            counts["spans"] += len(await self.spans(session.id))

        counts["state"] = len(await self.state())
        listed: tuple[tuple[UserDataKind, Callable[[], AsyncIterator[object]]], ...] = (
            ("runs", self.runs),
            ("requests", self.requests),
            ("answers", self.answers),
            ("feedback", self.feedback),
            ("given_feedback", self.given_feedback),
            ("schedules", self.schedules),
            ("memories", self.memories),
            ("artifacts", self.artifacts),
            ("credentials", self.credentials),
            ("usage", self.usage),
            ("audit_entries", self.audit_entries),
        )
        for kind, list_all in listed:
            counts[kind] = 0
            try:
                async for _ in list_all():
                    counts[kind] += 1
            except NotOffered as error:
                missing[kind] = error.detail
        return counts, missing

    async def sessions(self) -> AsyncGenerator[Session]:
        """Without their events."""

        async def page(token: str | None) -> Page[Session]:
            listed = await self.session_service.list_sessions(
                app_name=self.app_name, user_id=self.user_id, limit=PAGE, page_token=token
            )
            return listed.sessions, listed.next_page_token

        async for session in _pages(page):
            yield session

    async def state(self) -> JsonObject:
        """The state of all the user's sessions."""
        return await self.session_service.get_user_state(**self.owner)

    async def spans(self, session_id: str) -> list[SpanRecord]:
        """The newest spans of a session."""
        return await self.trace_store.of_session(session_id, **self.owner)

    async def runs(self) -> AsyncGenerator[Run]:
        async for run in _pages(self._runs_page):
            yield run

    async def _runs_page(self, token: str | None) -> Page[Run]:
        of_user = RunFilter(app_names=[self.app_name], user_id=self.user_id)
        listed = await self.engine.list_runs(of_user, limit=PAGE, page_token=token)
        return listed.runs, listed.next_page_token

    async def requests(self) -> AsyncGenerator[HumanRequest]:
        """Requests of the user's runs to people, open and closed."""
        async for request in self._requests(RequestFilter(user_id=self.user_id)):
            yield request

    async def answers(self) -> AsyncGenerator[OwnAnswer]:
        """The user's answers to requests in sessions of others. Reads all requests of the app."""
        async for request in self._requests(RequestFilter()):
            if request.user_id == self.user_id:
                continue
            own = [answer for answer in request.answers if answer.user_id == self.user_id]
            own += [delegation for delegation in request.delegations if delegation.from_user_id == self.user_id]
            if own:
                yield OwnAnswer(
                    request_id=request.id,
                    kind=request.kind,
                    tool=request.tool,
                    answers=[msgspec.to_builtins(answer) for answer in own],
                )

    async def _requests(self, where: RequestFilter) -> AsyncGenerator[HumanRequest]:
        where = msgspec.structs.replace(where, app_names=[self.app_name], with_closed=True)

        async def page(token: str | None) -> Page[HumanRequest]:
            listed = await self.engine.list_requests(where, limit=PAGE, page_token=token)
            return listed.requests, listed.next_page_token

        async for request in _pages(page):
            yield request

    async def feedback(self) -> AsyncGenerator[Feedback]:
        """Feedback on the user's sessions, of whomever."""
        async for feedback in self._feedback(FeedbackFilter(app_name=self.app_name, user_id=self.user_id)):
            yield feedback

    async def given_feedback(self) -> AsyncGenerator[Feedback]:
        """The user's feedback on sessions of others."""
        async for feedback in self._feedback(FeedbackFilter(app_name=self.app_name, subject=self.user_id)):
            if feedback.user_id != self.user_id:
                yield feedback

    async def _feedback(self, where: FeedbackFilter) -> AsyncGenerator[Feedback]:
        async def page(token: str | None) -> Page[Feedback]:
            listed = await self.engine.feedback.list(where, limit=PAGE, page_token=token)
            return listed.feedback, listed.next_page_token

        async for feedback in _pages(page):
            yield feedback

    async def schedules(self) -> AsyncGenerator[Schedule]:
        """The user's schedules, but those that the app's code declares."""

        async def page(token: str | None) -> Page[Schedule]:
            listed = await self.engine.schedules.list(**self.owner, limit=PAGE, page_token=token)
            return listed.schedules, listed.next_page_token

        async for schedule in _pages(page):
            if not schedule.is_of_app:
                yield schedule

    async def memories(self) -> AsyncGenerator[MemoryEntry]:
        async def page(token: str | None) -> Page[MemoryEntry]:
            listed = await self.memory_service.list_memories(**self.owner, limit=10 * PAGE, page_token=token)
            return listed.memories, listed.next_page_token

        async for memory in _pages(page):
            yield memory

    async def artifacts(self) -> AsyncGenerator[StoredArtifact]:
        """All versions of the artifacts of the user and of the user's sessions."""
        for name in await self._artifact_names(_NO_SESSION):
            if name.startswith(USER_NAMESPACE):
                async for version in self._versions(None, name):
                    yield version

        async for session in self.sessions():
            for name in await self._artifact_names(session.id):
                if not name.startswith(USER_NAMESPACE):
                    async for version in self._versions(session.id, name):
                        yield version

    async def content_of(self, artifact: StoredArtifact) -> ArtifactContent | None:
        """None if it was deleted meanwhile."""
        return await self.artifact_service.download_artifact(
            **self.owner,
            session_id=artifact.session_id or _NO_SESSION,
            filename=artifact.filename,
            version=artifact.version.version,
        )

    async def _artifact_names(self, session_id: str) -> Sequence[str]:
        """The names in a session; none for an id that the store refuses, which can't have any."""
        try:
            return await self.artifact_service.list_artifact_keys(**self.owner, session_id=session_id)
        except InvalidRequest:
            return ()

    async def _versions(self, session_id: str | None, filename: str) -> AsyncGenerator[StoredArtifact]:
        described = await self.artifact_service.list_artifact_versions(
            **self.owner, session_id=session_id or _NO_SESSION, filename=filename
        )
        for version in described:
            yield StoredArtifact(session_id, filename, version)

    async def credentials(self) -> AsyncGenerator[GrantedLogin]:
        """Without secrets."""
        stored = await self.credential_service.list_credentials(**self.owner)
        for key, credential in stored.items():
            expires_at = credential.oauth2.expires_at if credential.oauth2 is not None else None
            yield GrantedLogin(credential_key=key, auth_type=credential.auth_type, expires_at=expires_at)

    async def usage(self) -> AsyncGenerator[UsageSum]:
        """By run and model."""

        async def page(token: str | None) -> Page[UsageSum]:
            listed = await self.session_service.usage.query_usage(
                **self.owner, group_by=["run", "model", "day"], limit=PAGE, page_token=token
            )
            return listed.usage, listed.next_page_token

        async for usage in _pages(page):
            yield usage

    async def audit_entries(self) -> AsyncGenerator[AuditEntry]:
        """Entries of the audit trail about the user's data."""
        audit = self.audit
        if audit is None:
            return

        async def page(token: str | None) -> Page[AuditEntry]:
            about = AuditFilter(app_names=[self.app_name], user_id=self.user_id)
            listed = await audit.list_entries(about, limit=10 * PAGE, page_token=token)
            return listed.entries, listed.next_page_token

        async for entry in _pages(page):
            yield entry


async def _pages(read: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncGenerator[T]:
    """The items of all pages."""
    token: str | None = None
    while True:
        items, token = await read(token)
        for item in items:
            yield item
        if token is None:
            return
