"""The header that a server adds to a request that it forwards: where the request came from, and the run that it starts.

    greenroom-forwarded: id=1&token=…&scheme=https&client=203.0.113.7&host=example.com&run=e-…&again=1

It is ignored unless its token is that of a row of the table of replicas. It gives no permissions: the owner checks the
credentials of the request itself.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from greenroom.errors import GreenroomError
from greenroom.records.identifiers import new_invocation_id
from greenroom.runs.engine import ForwardedRequest
from greenroom.runs.ownership import Replicas

FORWARDED = b"greenroom-forwarded"

_REMEMBERED_BYTES = 500
"""Size up to which a value is kept for the next request: clients may send long ones."""


async def make_stamp(scope: Scope, replicas: Replicas) -> bytes:
    """The value of the header for a request of a client. Raises StorageError."""
    own = await replicas.find(replicas.own_id)
    client = scope.get("client")
    host = next((value for name, value in scope["headers"] if name == b"host"), None)
    encode = _encoded if host is None or len(host) <= _REMEMBERED_BYTES else _encoded.__wrapped__
    token = own.token if own is not None else ""
    return encode(replicas.own_id, token, scope["scheme"], client[0] if client else None, host)


def with_run(stamp: bytes, forwarded: ForwardedRequest) -> bytes:
    """The value of the header with the run that the request starts."""
    return b"%b&run=%b%b" % (stamp, forwarded.run_id.encode(), b"&again=1" if forwarded.is_repeated else b"")


async def read_stamp(scope: Scope, replicas: Replicas) -> tuple[Scope, ForwardedRequest | None]:
    """The scope of the client's own request, and the run of one that another server has forwarded."""
    value = next((value for name, value in scope["headers"] if name == FORWARDED), None)
    if value is None:
        return scope, None

    stamp, _, of_run = value.partition(b"&run=")
    decode = _decoded if len(stamp) <= _REMEMBERED_BYTES else _decoded.__wrapped__
    given = decode(stamp)
    try:
        sender = await replicas.find(given.get("id", ""))
    except GreenroomError:
        sender = None
    if sender is None or not hmac.compare_digest(sender.token.encode(), given.get("token", "").encode()):
        return scope, None

    headers = [(name, value) for name, value in scope["headers"] if name not in (FORWARDED, b"host")]
    if "host" in given:
        headers.append((b"host", given["host"].encode("latin-1")))
    client = (given["client"], 0) if "client" in given else None
    original = {**scope, "headers": headers, "client": client, "scheme": given.get("scheme", scope["scheme"])}
    run_id, _, is_repeated = of_run.decode("latin-1").partition("&again=")
    return original, ForwardedRequest(run_id or new_invocation_id(), bool(is_repeated))


@lru_cache(maxsize=1024)
def _encoded(own_id: str, token: str, scheme: str, client: str | None, host: bytes | None) -> bytes:
    stamp = {"id": own_id, "token": token, "scheme": scheme}
    if client is not None:
        stamp["client"] = client
    if host is not None:
        stamp["host"] = host.decode("latin-1")
    return urlencode(stamp).encode()


@lru_cache(maxsize=1024)
def _decoded(stamp: bytes) -> Mapping[str, str]:
    return dict(parse_qsl(stamp.decode("latin-1"), keep_blank_values=True))
