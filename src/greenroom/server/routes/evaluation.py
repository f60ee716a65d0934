"""Evaluation, which this server does not do yet: ADK's web page finds no sets and no results, and is told why."""

from __future__ import annotations

from greenroom.errors import NotOffered
from greenroom.server.call import AnyReply, Call, Reply


async def list_eval_sets(call: Call) -> AnyReply:
    return Reply(value=[])


async def list_eval_set_ids(call: Call) -> AnyReply:
    return Reply(value={"evalSetIds": []})


async def list_eval_results(call: Call) -> AnyReply:
    return Reply(value=[])


async def list_eval_result_ids(call: Call) -> AnyReply:
    return Reply(value={"evalResultIds": []})


async def evaluate(call: Call) -> AnyReply:
    """What needs the evaluation. ADK's page shows a detail that says \"not installed\"."""
    raise NotOffered("Evaluation is not installed in this server")
