"""The header that a server adds to a request that it forwards: where the request came from.

    greenroom-forwarded: id=1&token=…&scheme=https&client=203.0.113.7&host=example.com

It is ignored unless its token is that of a row of the table of replicas. It gives no permissions: the owner checks the
credentials of the request itself.
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from greenroom.errors import GreenroomError
from greenroom.runs.ownership import Replicas

FORWARDED = b"greenroom-forwarded"


async def make_stamp(scope: Scope, replicas: Replicas) -> tuple[bytes, bytes]:
    """The header for a request, which this server forwards. Raises StorageError."""
    own = await replicas.find(replicas.own_id)
    stamp = {"id": replicas.own_id, "token": own.token if own is not None else "", "scheme": scope["scheme"]}
    if scope.get("client"):
        stamp["client"] = scope["client"][0]
    host = next((value for name, value in scope["headers"] if name == b"host"), None)
    if host is not None:
        stamp["host"] = host.decode("latin-1")
    return FORWARDED, urlencode(stamp).encode()


async def original_scope(scope: Scope, replicas: Replicas) -> Scope:
    """The scope itself; for a request that another server has forwarded, that of the client's own request."""
    value = next((value for name, value in scope["headers"] if name == FORWARDED), None)
    if value is None:
        return scope

    given = dict(parse_qsl(value.decode("latin-1"), keep_blank_values=True))
    try:
        sender = await replicas.find(given.get("id", ""))
    except GreenroomError:
        sender = None
    if sender is None or not hmac.compare_digest(sender.token.encode(), given.get("token", "").encode()):
        return scope

    headers = [(name, value) for name, value in scope["headers"] if name not in (FORWARDED, b"host")]
    if "host" in given:
        headers.append((b"host", given["host"].encode("latin-1")))
    client = (given["client"], 0) if "client" in given else None
    return {**scope, "headers": headers, "client": client, "scheme": given.get("scheme", scope["scheme"])}
