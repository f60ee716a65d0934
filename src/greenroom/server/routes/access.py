"""Handlers of keys, service accounts and roles, and of the caller's own permissions."""

from __future__ import annotations

from greenroom.records.access import Me, check_name
from greenroom.server.access.identity import EVERYBODY
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

PAGE_LIMIT = 1000


async def get_me(context: RequestContext) -> AnyReply:
    identity = context.identity
    me = Me(
        user_id=None if identity is EVERYBODY else identity.subject,
        scopes=sorted(identity.scopes),
        apps=None if identity.apps is None else sorted(identity.apps),
        key_id=identity.key_id,
    )
    return Reply(value=me)


async def list_keys(context: RequestContext) -> AnyReply:
    query = context.query
    listed = await context.access.list_keys(
        user_id=query["user_id"],
        service_account=query["service_account"],
        limit=min(query["limit"] or 100, PAGE_LIMIT),
        page_token=query["page_token"],
    )
    return Reply(value=listed)


async def create_key(context: RequestContext) -> AnyReply:
    return Reply(value=await context.access.create_key(context.body), headers={"cache-control": "no-store"})


async def get_key(context: RequestContext) -> AnyReply:
    return Reply(value=await context.access.get_key(context.path["key_id"]))


async def revoke_key(context: RequestContext) -> AnyReply:
    return Reply(value=await context.access.revoke_key(context.path["key_id"], force=context.query["force"]))


async def list_accounts(context: RequestContext) -> AnyReply:
    return Reply(value=await context.access.list_accounts())


async def get_account(context: RequestContext) -> AnyReply:
    return Reply(value=await context.access.get_account(context.path["account_name"]))


async def put_account(context: RequestContext) -> AnyReply:
    name = check_name(context.path["account_name"])
    return Reply(value=await context.access.put_account(name, context.body, force=context.query["force"]))


async def delete_account(context: RequestContext) -> None:
    await context.access.delete_account(context.path["account_name"], force=context.query["force"])


async def list_roles(context: RequestContext) -> AnyReply:
    return Reply(value=await context.access.list_roles())


async def put_role(context: RequestContext) -> AnyReply:
    name = check_name(context.path["role_name"])
    return Reply(value=await context.access.put_role(name, context.body, force=context.query["force"]))


async def delete_role(context: RequestContext) -> None:
    await context.access.delete_role(context.path["role_name"])
