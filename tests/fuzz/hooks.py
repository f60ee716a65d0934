"""Loaded by schemathesis: lets requests that are cut off in their midst go before some of its own, or so many that the
pace of requests is used up.

GREENROOM_FUZZ_CUT is the share of all requests that is cut off; each leaves a byte in the file GREENROOM_FUZZ_CUTS.
GREENROOM_FUZZ_LIMITED says that there is a pace.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from typing import Any
from urllib.parse import urlsplit

import requests
import schemathesis

from greenroom.records.run import MAX_DELAY_SECONDS, MAX_START_AT
from tests.fuzz.counts import NOT_COUNTED

SHARE = float(os.environ["GREENROOM_FUZZ_CUT"])
KEY = os.environ.get("GREENROOM_API_KEY")
SOON_SECONDS = 0.1
HASTY = 0.1 if os.environ["GREENROOM_FUZZ_LIMITED"] else 0.0
_random = random.Random(int(os.environ["GREENROOM_SEED"]))
_diary = open(os.environ["GREENROOM_FUZZ_CUTS"], "ab", buffering=0)  # noqa: SIM115
_RESET = struct.pack("ii", 1, 0)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    _hasten(case.body)
    if _random.random() < SHARE / (1 - SHARE):
        headers = {"authorization": f"Bearer {KEY}"} if KEY else {}
        _cut_off(_written(case.as_transport_kwargs(base_url=os.environ["GREENROOM_FUZZ_URL"], headers=headers)))
        _diary.write(b".")
    if _random.random() < HASTY:
        _use_up_the_rate_limit()


def _hasten(body: Any) -> None:
    """Has a run start soon that would start much later, so that its response comes."""
    if not isinstance(body, dict):
        return
    for name, now, limit in (("delaySeconds", 0.0, MAX_DELAY_SECONDS), ("startAt", time.time(), MAX_START_AT)):
        value = body.get(name)
        if isinstance(value, int | float) and now + SOON_SECONDS < value < limit:
            body[name] = now + SOON_SECONDS


def _use_up_the_rate_limit() -> None:
    headers = {"authorization": f"Bearer {KEY}", NOT_COUNTED: "1"}
    with requests.Session() as session:
        for _ in range(1000):
            if session.head(os.environ["GREENROOM_FUZZ_URL"] + "/list-apps", headers=headers).status_code == 429:
                return
    raise AssertionError("the pace is not kept to")


def _written(call: dict[str, Any]) -> bytes:
    """The request as it goes over the wire."""
    names = ("method", "url", "headers", "params", "cookies", "data", "json", "files")
    request = requests.Request(**{name: call[name] for name in names if name in call}).prepare()
    head = [f"{request.method} {request.path_url} HTTP/1.1", f"Host: {urlsplit(request.url).netloc}"]
    lines = [line.encode() for line in head]
    for name, value in request.headers.items():
        lines.append(_bytes(name) + b": " + _bytes(value))
    return b"\r\n".join([*lines, b"", b""]) + _bytes(request.body or b"")


def _bytes(value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)


def _cut_off(request: bytes) -> None:
    """A part is sent; then the client closes its side, or is gone."""
    address = urlsplit(os.environ["GREENROOM_FUZZ_URL"])
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(request[: _random.randrange(1, len(request))])
        if _random.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
