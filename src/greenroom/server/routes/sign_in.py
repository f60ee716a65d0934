"""Signing in with a browser: the key becomes a cookie that no script reads and no other site can make use of."""

from __future__ import annotations

import time

from greenroom.records.base import Record
from greenroom.server.access.identity import COOKIE
from greenroom.server.call import AnyReply, Call, Reply


class SignInRequest(Record, kw_only=True):
    """key: an API key or a token; an empty one signs out."""

    key: str


async def sign_in(call: Call) -> AnyReply:
    body: SignInRequest = call.body
    key = body.key.strip()
    attributes = ["Path=/", "HttpOnly", "SameSite=Strict"]
    if call.headers.get("origin", "").startswith("https://"):
        attributes.append("Secure")
    if not key:
        attributes.append("Max-Age=0")
    else:
        identity = await call.identify(key)
        if not identity.key_id and identity.expires_at is None:
            key = ""  # nobody is asked here
        elif identity.expires_at is not None:
            attributes.append(f"Max-Age={max(int(identity.expires_at - time.time()), 0)}")
    return Reply(value=None, headers={"set-cookie": "; ".join([f"{COOKIE}={key}", *attributes])})
