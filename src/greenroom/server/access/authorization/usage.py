"""Usage of models, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.server.access.authorization.authorized import Authorized, reading
from greenroom.usage.store import UsageStore


class AuthorizedUsage(Authorized[UsageStore]):
    __slots__ = ()

    query_usage = reading(UsageStore.query_usage)
