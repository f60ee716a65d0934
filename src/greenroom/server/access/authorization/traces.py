"""Traces, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.server.access.authorization.authorized import Authorized, writing
from greenroom.telemetry.span_record import SpanRecord
from greenroom.traces.store import TraceStore


class AuthorizedTraces(Authorized[TraceStore]):
    """`TraceStore` for one caller: traces that it may not see are reported as not found.

    Without an app_name, as in the paths of ADK's first servers, an unlimited caller reads traces of all apps; other
    callers read those of their own runs, or of the apps that they are limited to.
    """

    __slots__ = ()

    forget = writing(TraceStore.forget)

    async def of_session(self, session_id: str, *, app_name: str | None) -> list[SpanRecord]:
        spans: list[SpanRecord] = []
        for app, user in self._owners(app_name):
            spans += await self._service.of_session(session_id, app_name=app, user_id=user)
        return spans

    async def of_event(self, event_id: str, *, app_name: str | None) -> SpanRecord | None:
        for app, user in self._owners(app_name):
            span = await self._service.of_event(event_id, app_name=app, user_id=user)
            if span is not None:
                return span
        return None

    def _owners(self, app_name: str | None) -> list[tuple[str | None, str | None]]:
        """Apps and users to look up; None: any. Raises Forbidden."""
        identity = self._permissions.identity
        if app_name is not None:
            user_id = None if identity.acts_for(app_name, None) else identity.subject
            self._permissions.check("read", app_name, user_id)
            return [(app_name, user_id)]
        if identity.is_unlimited:
            return [(None, None)]
        if identity.apps is None:
            return [(None, identity.subject)]
        return [owner for app in sorted(identity.apps) for owner in self._owners(app)]
