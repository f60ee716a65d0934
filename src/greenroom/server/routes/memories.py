"""Handlers of a user's memories."""

from __future__ import annotations

from greenroom.errors import NotFound
from greenroom.records.listings import ChangeMemoryRequest, ListMemoriesResponse
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

PAGE_LIMIT = 1000


async def list_memories(context: RequestContext) -> AnyReply:
    """A page of all memories, or the best matches of a query."""
    query = context.query
    limit = min(query["limit"] or 100, PAGE_LIMIT)
    if query["query"]:
        found = await context.memory.search_memory(**context.user_names, query=query["query"], limit=limit)
        return Reply(value=ListMemoriesResponse(memories=found.memories))
    listed = await context.memory.list_memories(**context.user_names, limit=limit, page_token=query["page_token"])
    return Reply(value=listed)


async def change_memory(context: RequestContext) -> AnyReply:
    body: ChangeMemoryRequest = context.body
    memory_id = context.path["memory_id"]
    changed = await context.memory.change_memory(
        **context.user_names,
        memory_id=memory_id,
        content=await context.redacted(body.content),
        custom_metadata=body.custom_metadata,
    )
    if changed is None:
        raise NotFound(f"User {context.path['user_id']!r} has no memory {memory_id!r} in this app")
    return Reply(value=changed)


async def delete_memory(context: RequestContext) -> None:
    await context.memory.delete_memory(**context.user_names, memory_id=context.path["memory_id"])
