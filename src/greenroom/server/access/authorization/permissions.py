"""Permissions of a caller: its identity, limited by the access of the endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from greenroom.errors import Forbidden
from greenroom.records.audit import AuditAction
from greenroom.server.access.audit import RequestAudit
from greenroom.server.access.identity import Access, Identity
from greenroom.server.exchange import Exchange

Operation = Literal["read", "write"]

_ACCESSES: Mapping[Operation, frozenset[Access]] = {
    "read": frozenset({"read", "run", "manage", "debug"}),
    "write": frozenset({"run", "manage"}),
}


@dataclass(slots=True)
class Permissions:
    """An identity, limited by the endpoint's access: open endpoints can't read, and reading ones can't write."""

    identity: Identity
    access: Access
    exchange: Exchange | None = None
    """Learns that a service has refused a call, without effect, since another server runs the session. None where
    one server runs all sessions."""
    audit: RequestAudit | None = None
    """None where the audit trail is off."""

    def check(self, operation: Operation, app_name: str, user_id: str | None) -> None:
        """Raises Forbidden."""
        if self.audit is None:
            self._check(operation, app_name, user_id)
            return
        try:
            self._check(operation, app_name, user_id)
        except Forbidden as error:
            self.audit.note_refusal(error)
            raise
        if operation == "read":
            self.audit.note_access(self.identity, app_name, user_id)

    async def record(self, action: AuditAction, **names: Any) -> None:
        """Records what was done in the audit trail, if there is one."""
        if self.audit is not None:
            await self.audit.record(action, **names)

    def _check(self, operation: Operation, app_name: str, user_id: str | None) -> None:
        if self.access not in _ACCESSES[operation]:
            raise Forbidden(f"This endpoint's scope, {self.access!r}, does not allow to {operation}")
        if not self.identity.is_unlimited:
            self.identity.check_reach(app_name, user_id)
