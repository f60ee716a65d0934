"""Handlers of credentials: list a user's granted logins without secrets, and revoke them."""

from __future__ import annotations

from greenroom.records.auth import GrantedLogin
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext


async def list_credentials(context: RequestContext) -> AnyReply:
    found = await context.credentials.list_credentials(**context.user_names)
    logins: list[GrantedLogin] = []
    for key, credential in found.items():
        expires_at = credential.oauth2.expires_at if credential.oauth2 is not None else None
        logins.append(GrantedLogin(credential_key=key, auth_type=credential.auth_type, expires_at=expires_at))
    return Reply(value=logins)


async def revoke_credential(context: RequestContext) -> None:
    key = context.path["credential_key"]
    await context.credentials.delete_credential(**context.user_names, credential_key=key)
