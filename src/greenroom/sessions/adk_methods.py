"""Adapts session stores written for ADK, whose methods have fewer parameters, to the contract.

Operations that such a store lacks are built from ADK's methods: pages of a list, imported logs, partial sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

from greenroom.errors import NotOffered
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, ListSessionsResponse, Session, SessionFilter
from greenroom.sessions.arguments import check_config, check_limit, next_page, page_position
from greenroom.sessions.cached_session import filter_events, fits_state

Create = Callable[..., Awaitable[Session]]
Get = Callable[..., Awaitable[Session | None]]
List = Callable[..., Awaitable[ListSessionsResponse]]


def with_imported_log(create: Create) -> Create:
    @wraps(create)
    async def create_session(
        self: Any,
        *,
        app_name: str,
        user_id: str,
        state: JsonObject | None = None,
        session_id: str | None = None,
        events: Sequence[Event] = (),
    ) -> Session:
        wanted_id = (session_id or "").strip() or None
        session = await create(self, app_name=app_name, user_id=user_id, state=state, session_id=wanted_id)
        if not events:
            return session

        try:
            await self.append(session, *events)
        except BaseException:
            await self.delete_session(app_name=app_name, user_id=user_id, session_id=session.id)
            raise
        return session

    return create_session


def with_partial_logs(get: Get) -> Get:
    @wraps(get)
    async def get_session(
        self: Any, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        check_config(config)
        if config is not None and config.until_seq is not None:
            raise NotOffered(f"{type(self).__name__} can't show past states")

        session = await get(self, app_name=app_name, user_id=user_id, session_id=session_id, config=config)
        if session is not None and config is not None:
            session.events = filter_events(session.events, config)
        return session

    return get_session


def with_pages(list_all: List) -> List:
    @wraps(list_all)
    async def list_sessions(
        self: Any,
        *,
        app_name: str,
        user_id: str | None = None,
        where: SessionFilter | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListSessionsResponse:
        check_limit(limit)
        before = page_position(page_token)
        if where is not None and where.text is not None:
            raise NotOffered(f"{type(self).__name__} can't search sessions by text")

        listed = await list_all(self, app_name=app_name, user_id=user_id)
        matching = [
            session
            for session in listed.sessions
            if _fits(session, where) and (before is None or _position(session) < before)
        ]
        matching.sort(key=_position, reverse=limit is not None)
        page = matching[:limit]
        return ListSessionsResponse(
            sessions=page, next_page_token=next_page(page) if len(page) < len(matching) else None
        )

    return list_sessions


def _fits(session: Session, where: SessionFilter | None) -> bool:
    if where is None:
        return True
    if where.updated_from is not None and session.last_update_time < where.updated_from:
        return False
    if where.updated_before is not None and session.last_update_time >= where.updated_before:
        return False
    return fits_state(session.state, where)


def _position(session: Session) -> tuple[float, str, str]:
    """The position in a listing."""
    return session.last_update_time, session.user_id, session.id
