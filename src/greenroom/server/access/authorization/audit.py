"""The audit trail, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.audit.store import AuditStore
from greenroom.records.audit import AuditFilter, ListAuditResponse
from greenroom.server.access.authorization.authorized import Authorized


class AuthorizedAudit(Authorized[AuditStore]):
    """The audit trail for one caller: that of the apps which it may access, with all their users. Entries about no app,
    such as those about keys, are for callers that may access all apps."""

    __slots__ = ()

    async def list_entries(self, where: AuditFilter, *, limit: int, page_token: str | None = None) -> ListAuditResponse:
        """Raises Forbidden, InvalidRequest."""
        identity = self._permissions.identity
        identity.check("audit")
        for app in where.app_names or ():
            identity.check_app(app)
        if where.app_names is None and identity.apps is not None:
            where.app_names = sorted(identity.apps)
        page = await self._service.list_entries(where, limit=limit, page_token=page_token)
        if page_token is None:
            page.state = await self._service.state()
        return page
