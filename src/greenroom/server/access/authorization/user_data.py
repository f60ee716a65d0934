"""All data of a user in an app, limited to the caller's permissions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from urllib.parse import quote

from greenroom.errors import Unavailable
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.session import SessionKey
from greenroom.records.user_data import ErasureReport
from greenroom.server.access.authorization.permissions import Permissions
from greenroom.server.user_data.erasure import erase, erase_own
from greenroom.server.user_data.export import UserExport
from greenroom.server.user_data.inventory import UserData

_decode_problem = wire.decoder(JsonObject)


class AuthorizedUserData:
    """The data of users for one caller."""

    __slots__ = ("_data_of", "_permissions")

    def __init__(self, data_of: Callable[[str, str], UserData], permissions: Permissions) -> None:
        """data_of: the data of a user in an app, by the names of the app and the user."""
        self._data_of = data_of
        self._permissions = permissions

    async def export(self, *, app_name: str, user_id: str) -> AsyncGenerator[bytes]:
        """A zip file with a user's data, in pieces. Raises Forbidden."""
        self._permissions.check("read", app_name, user_id)
        await self._permissions.record("user.exported", app_name=app_name, user_id=user_id)
        return UserExport(self._data_of(app_name, user_id)).pieces()

    async def erase(self, *, app_name: str, user_id: str) -> ErasureReport | None:
        """Deletes a user's data. None for the request of another server, whose part of the erasure this is.

        Raises Forbidden, NotOffered, OwnershipLost, Unavailable.
        """
        self._permissions.check("write", app_name, user_id)
        user = self._data_of(app_name, user_id)
        exchange = self._permissions.exchange
        if exchange is not None and exchange.is_forwarded:
            await erase_own(user)
            return None

        ask = exchange.ask_owner if exchange is not None else None
        path = f"/apps/{quote(app_name, safe='')}/users/{quote(user_id, safe='')}"

        async def ask_owner(key: SessionKey) -> None:
            if ask is None:
                raise Unavailable("No other server can be asked")
            status, body = await ask(key, own_path=path, path=path, method="DELETE")
            if status != HTTPStatus.OK:
                raise Unavailable(f"The server of session {key.session_id!r}: {_decode_problem(body).get('detail')}")

        report = await erase(user, ask_owner if ask is not None else None)
        await self._permissions.record("user.deleted", app_name=app_name, user_id=user_id)
        return report
