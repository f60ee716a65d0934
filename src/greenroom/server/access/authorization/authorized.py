"""The base class of the services limited to a caller, and the methods of services behind a check."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from greenroom.errors import OwnershipLost
from greenroom.records.audit import AuditAction
from greenroom.records.event import Event
from greenroom.records.session import Session
from greenroom.records.state import APP_PREFIX
from greenroom.server.access.authorization.permissions import Operation, Permissions
from greenroom.server.access.identity import Identity

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Authorized(Generic[T]):
    """A service for one caller. Subclasses list the methods that handlers may call, and the permission for each."""

    __slots__ = ("_permissions", "_service")

    def __init__(self, service: T, permissions: Permissions) -> None:
        self._service = service
        self._permissions = permissions

    @property
    def _identity(self) -> Identity:
        return self._permissions.identity

    def _check(self, operation: Operation, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """The app and the user are those of the first argument, else the keyword arguments; without `user_id`, the
        call concerns all users. Raises Forbidden."""
        permissions = self._permissions
        if args:
            permissions.check(operation, args[0].app_name, args[0].user_id)
        else:
            permissions.check(operation, named["app_name"], named.get("user_id"))
        if operation == "write" and not permissions.identity.is_unlimited and _writes_app_state(args, named):
            permissions.identity.check("manage")

    def _watched(self, method: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Calls a method of the service, and notes in the exchange if it was refused."""
        try:
            result = method(*args, **named)
        except OwnershipLost as error:
            self._note_lost(error)
            raise
        if asyncio.iscoroutine(result):
            return cast("R", self._watched_result(result))
        return result

    async def _watched_result(self, result: Awaitable[Any]) -> Any:
        try:
            return await result
        except OwnershipLost as error:
            self._note_lost(error)
            raise

    async def _audited(self, action: AuditAction, result: Awaitable[Any], names: Mapping[str, Any]) -> Any:
        """Awaits a call of the service, and records it."""
        done = await result
        await self._permissions.record(action, **names)
        return done

    def _note_lost(self, error: OwnershipLost) -> None:
        if self._permissions.exchange is not None:
            self._permissions.exchange.note_lost(error)


def reading(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Authorized[T], P], R]:
    """The method of a service, for callers that may read."""
    return _checked("read", method)


def writing(
    method: Callable[Concatenate[T, P], R], action: AuditAction | None = None
) -> Callable[Concatenate[Authorized[T], P], R]:
    """The method of a service, for callers that may write. action: of the audit trail; then the method is async."""
    return _checked("write", method, action)


def _checked(
    operation: Operation, method: Callable[Concatenate[T, P], R], action: AuditAction | None = None
) -> Callable[Concatenate[Authorized[T], P], R]:
    name = method.__name__

    def authorized(self: Authorized[T], *args: P.args, **named: P.kwargs) -> R:
        self._check(operation, args, named)
        of_service: Callable[P, R] = getattr(self._service, name)
        if self._permissions.exchange is None:
            result = of_service(*args, **named)
        else:
            result = self._watched(of_service, *args, **named)
        if action is None or self._permissions.audit is None:
            return result
        return cast("R", self._audited(action, cast("Awaitable[Any]", result), _names_in(args, named)))

    return authorized


def _names_in(args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The names of an entry of the audit trail that the arguments of a call have."""
    names = {name: named[name] for name in ("app_name", "user_id", "session_id") if name in named}
    if args:
        first = args[0]
        names = {"app_name": first.app_name, "user_id": first.user_id}
        names["session_id"] = first.id if isinstance(first, Session) else getattr(first, "session_id", None)
    target = next((named[name] for name in ("filename", "credential_key") if name in named), None)
    return {**names, "target": target}


def _writes_app_state(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """App state needs its own scope, because agents of all users read it."""
    if _has_app_key(named.get("state")):
        return True
    if args and _has_app_key(getattr(args[0], "state_delta", None)):
        return True
    for one in (*args[1:], *named.get("events", ())):
        if isinstance(one, Event) and _has_app_key(one.actions.state_delta):
            return True
    return False


def _has_app_key(delta: Mapping[str, object] | None) -> bool:
    return bool(delta) and any(key.startswith(APP_PREFIX) for key in delta)
