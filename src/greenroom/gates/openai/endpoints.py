"""The table of endpoints."""

from __future__ import annotations

from dataclasses import replace

from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    ApprovalRefused,
    InvalidRequest,
    RunFailed,
    RunNotFound,
    SessionBusy,
    SessionFull,
    TooManyRuns,
    Unavailable,
)
from greenroom.gates.openai.chat import ChatRequest, create_chat_completion
from greenroom.gates.openai.responses import ResponsesRequest, cancel_response, create_response, get_response
from greenroom.records.base import JsonObject
from greenroom.server.endpoint import Endpoint, Query
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext


async def list_models(context: RequestContext) -> AnyReply:
    names = await context.apps.list_apps()
    return Reply(value={"object": "list", "data": [_model(name) for name in names]})


async def get_model(context: RequestContext) -> AnyReply:
    await context.apps.check_exists(context.path["model"])
    return Reply(value=_model(context.path["model"]))


def add_error(reply: Reply, *_: object) -> None:
    """OpenAI's clients read the message of an error from `error`."""
    problem: JsonObject = reply.value
    reply.value = {
        **problem,
        "error": {"message": problem["detail"], "type": problem.get("code", "server_error"), "code": problem["status"]},
    }


def _model(app_name: str) -> JsonObject:
    return {"id": app_name, "object": "model", "created": 0, "owned_by": "greenroom"}


_ERRORS = (
    AppNotFound, AppLoadError, RunNotFound, InvalidRequest, SessionBusy, SessionFull, ApprovalRefused, TooManyRuns,
    Unavailable, RunFailed,
)  # fmt: skip
_RESPONSE = "/v1/responses/{response_id}"

_TABLE: tuple[Endpoint, ...] = (
    Endpoint("GET", "/v1/models", list_models, "OpenAI", "read", "The apps as models", replies=JsonObject),
    Endpoint("GET", "/v1/models/{model}", get_model, "OpenAI", "read", "An app as a model", replies=JsonObject,
        errors=(AppNotFound,)),
    Endpoint("POST", "/v1/chat/completions", create_chat_completion, "OpenAI", "run",
        "Send a chat's messages to an app; with `stream`, the reply is a stream of chunks", body=ChatRequest,
        replies=JsonObject, errors=_ERRORS),
    Endpoint("POST", "/v1/responses", create_response, "OpenAI", "run",
        "Send a message to an app; with `stream`, the reply is a stream of events", body=ResponsesRequest,
        replies=JsonObject, errors=_ERRORS),
    Endpoint("GET", _RESPONSE, get_response, "OpenAI", "read", "A response; with `stream`, its events",
        query=(
            Query("stream", bool, "Answer with the stream of its events.", default=False),
            Query("starting_after", int, "Leave out the events up to this sequence number."),
        ),
        replies=JsonObject, errors=(RunNotFound, InvalidRequest)),
    Endpoint("POST", _RESPONSE + "/cancel", cancel_response, "OpenAI", "run", "Cancel a response", replies=JsonObject,
        errors=(RunNotFound,)),
)  # fmt: skip

ENDPOINTS = tuple(replace(endpoint, adapt_error=add_error) for endpoint in _TABLE)
