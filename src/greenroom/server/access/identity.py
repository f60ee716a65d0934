"""Identities of callers, and scopes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from greenroom.errors import Forbidden
from greenroom.records.approval_policy import APPROVE_PREFIX
from greenroom.records.run import Caller

Scope = Literal["run", "read", "manage", "debug", "audit"]

Access = Literal["open", "any", "run", "read", "manage", "debug", "audit", "admin"]
"""The scope that an endpoint requires; "any" requires valid credentials only, and "open" none."""

SCOPES: tuple[Scope, ...] = ("run", "read", "manage", "debug", "audit")
ADMIN = "admin"
APP_PREFIX = "app:"
_PREFIXES = (APP_PREFIX, APPROVE_PREFIX)

COOKIE = "greenroom_key"
"""Name of the cookie that holds the key of a signed-in browser."""


def is_scope(text: str) -> bool:
    return text in SCOPES or text == ADMIN or (text.startswith(_PREFIXES) and text not in _PREFIXES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """An authenticated caller, or EVERYBODY where authentication is off."""

    subject: str
    """The only `userId` that the caller acts for, unless a scope allows more."""
    scopes: frozenset[str]
    """Names from SCOPES. `app:NAME` acts for all users of that app; `admin` may do everything for all users, but is no
    approver; `approve:NAME` answers requests whose policy names it."""
    apps: frozenset[str] | None = None
    """The only apps that the caller may access, independent of its scopes; None: all."""
    key_id: str | None = None
    """The id of the API key that was sent."""
    expires_at: float | None = None
    """Unix seconds."""
    is_unlimited: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_unlimited", ADMIN in self.scopes and self.apps is None)

    @property
    def caller(self) -> Caller | None:
        """The caller as stored with runs; None where authentication is off."""
        if self is EVERYBODY:
            return None
        return Caller(user_id=self.subject, key_id=self.key_id, scopes=sorted(self.scopes))

    def may(self, access: Access) -> bool:
        return access in ("open", "any") or access in self.scopes or ADMIN in self.scopes

    def reaches(self, app_name: str) -> bool:
        return self.apps is None or app_name in self.apps

    def acts_for(self, app_name: str, user_id: str | None) -> bool:
        """True if the caller may act for the user; with None, for all users of the app."""
        if not self.reaches(app_name):
            return False
        return user_id == self.subject or ADMIN in self.scopes or APP_PREFIX + app_name in self.scopes

    @property
    def apps_of_all_users(self) -> frozenset[str]:
        """Apps that scopes name, or that the caller is limited to, for all users of which it acts."""
        if ADMIN in self.scopes:
            return self.apps or frozenset()
        named = frozenset(scope.removeprefix(APP_PREFIX) for scope in self.scopes if scope.startswith(APP_PREFIX))
        return named if self.apps is None else named & self.apps

    def covers(self, scopes: Collection[str], apps: Collection[str] | None) -> bool:
        """True if the caller has all these permissions itself."""
        if self.apps is not None and (apps is None or not self.apps.issuperset(apps)):
            return False
        missing = [scope for scope in scopes if scope not in self.scopes]
        return not missing or (ADMIN in self.scopes and not any(scope.startswith(APPROVE_PREFIX) for scope in missing))

    def check(self, access: Access) -> None:
        """Raises Forbidden."""
        if not self.may(access):
            raise Forbidden(f"This needs the scope {access!r}")

    def check_app(self, app_name: str) -> None:
        """Raises Forbidden."""
        if not self.reaches(app_name):
            raise Forbidden(f"These credentials don't reach the app {app_name!r}")

    def check_reach(self, app_name: str, user_id: str | None) -> None:
        """Raises Forbidden."""
        self.check_app(app_name)
        if not self.acts_for(app_name, user_id):
            whom = "all users" if user_id is None else f"user {user_id!r}"
            raise Forbidden(f"These credentials don't act for {whom} in app {app_name!r}")


EVERYBODY = Identity(subject="anonymous", scopes=frozenset({ADMIN}))
"""The caller where authentication is off."""

NOBODY = Identity(subject="", scopes=frozenset(), apps=frozenset())
"""The caller of an open endpoint where authentication is on: its credentials are not checked."""
