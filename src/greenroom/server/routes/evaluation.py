"""Handlers of evaluation, which is not implemented: listings are empty, other endpoints answer 501."""

from __future__ import annotations

from greenroom.errors import NotOffered
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext


async def list_eval_sets(context: RequestContext) -> AnyReply:
    return Reply(value=[])


async def list_eval_set_ids(context: RequestContext) -> AnyReply:
    return Reply(value={"evalSetIds": []})


async def list_eval_results(context: RequestContext) -> AnyReply:
    return Reply(value=[])


async def list_eval_result_ids(context: RequestContext) -> AnyReply:
    return Reply(value={"evalResultIds": []})


async def evaluate(context: RequestContext) -> AnyReply:
    """Refuses the request. ADK's page shows a detail that says \"not installed\"."""
    raise NotOffered("Evaluation is not installed in this server")
