"""An MCP server over the run engine: a call of an app's tool is a run.

A call that needs a person's answer asks by elicitation. From protocol version 2026-07-28 on it ends
with the questions, and the client repeats it with the answers; the session's id is the state in
between, so any replica can take the repeated call. An older client is asked in the middle of the
call. Either way the run waits durably.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from greenroom.errors import CallerError, GreenroomError, InvalidRequest
from greenroom.event_streams.stream import RunEnded
from greenroom.gates.chat_messages import arguments_of, link_to
from greenroom.gates.run_start import response_part, seconds, start
from greenroom.gates.steps import CallStep, CorrectionStep, MediaStep, StepReader, TextStep
from greenroom.records import wire
from greenroom.records.approval_policy import policy_of
from greenroom.records.base import JsonObject, JsonValue, as_object
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.human_requests import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.runs.engine import Attachment
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import cancel_in_background
from greenroom.version import __version__

SCHEME = "greenroom"
PAGE = 100
MAX_ROUNDS = 100
"""Greatest number of rounds of input in one call."""

STATELESS_SINCE = "2026-07-28"
"""The protocol version that has no handshake."""

_INPUT: JsonObject = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        "session_id": {"type": "string", "description": "Continues the conversation of an earlier result."},
        "delay_seconds": {"type": "number", "description": "The agent starts later; the call does not wait for it."},
        "start_at": {"type": "number", "description": "As delay_seconds, but the time in Unix seconds."},
    },
    "required": ["message"],
}
_OUTPUT: JsonObject = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "session_id": {"type": "string"}},
    "required": ["text", "session_id"],
}
_APPROVAL: JsonObject = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Allow the call"}},
    "required": ["approve"],
}
_PRIMITIVES = ("string", "number", "integer", "boolean")

Context = ServerRequestContext[Any, Any]
Find = Callable[[Context], tuple[RequestContext, str | None]]
"""The caller's context of a message, and the app that its path names; None for all apps."""


def mcp_server(find: Find) -> Server[Any]:
    async def list_tools(ctx: Context, _: Any) -> types.ListToolsResult:
        context, named = find(ctx)
        names = [named] if named is not None else await context.apps.list_apps()
        return types.ListToolsResult(tools=[await _tool(context, name) for name in names])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
        context, named = find(ctx)
        if named not in (None, params.name):
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name!r}")
        try:
            return await _AppCall(ctx, context, params).result()
        except GreenroomError as error:
            return failed_result(error.detail)

    async def list_resources(ctx: Context, params: Any) -> types.ListResourcesResult:
        context, named = find(ctx)
        names = [named] if named is not None else await context.apps.list_apps()
        try:
            app_name, page, following = await _sessions(context, names, params and params.cursor)
        except CallerError as error:
            raise MCPError(types.INVALID_PARAMS, error.detail) from None

        resources = [
            types.Resource(
                name=session.title or session.id, uri=_uri(app_name, session.id), mime_type="application/json"
            )
            for session in page
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=following)

    async def list_templates(ctx: Context, _: Any) -> types.ListResourceTemplatesResult:
        _, named = find(ctx)
        template = types.ResourceTemplate(
            name="session",
            uri_template=_uri(named or "{app_name}", "{session_id}"),
            description="A conversation with all its events.",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        context, named = find(ctx)
        app_name, _, session_id = str(params.uri).removeprefix(f"{SCHEME}://").partition("/sessions/")
        try:
            if not session_id or named not in (None, app_name):
                raise InvalidRequest(f"There is no resource {params.uri}")
            session = await context.find_session(SessionKey(app_name, context.identity.subject, session_id))
        except CallerError as error:
            raise MCPError(types.INVALID_PARAMS, error.detail, {"uri": str(params.uri)}) from None

        text = wire.encode(session).decode()
        content = types.TextResourceContents(uri=params.uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[content])

    return Server(
        "greenroom",
        version=__version__,
        instructions="Each tool is an agent: say what you want. Its result has the id of the conversation.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


async def _tool(context: RequestContext, app_name: str) -> types.Tool:
    try:
        app = await context.apps.load(app_name)
    except GreenroomError as error:
        description = f"Can't be loaded: {error.detail}"
    else:
        description = app.root_agent.description or f"The agent {app_name}."
    return types.Tool(name=app_name, description=description, input_schema=_INPUT, output_schema=_OUTPUT)


async def _sessions(
    context: RequestContext, names: Sequence[str], cursor: str | None
) -> tuple[str, Sequence[Session], str | None]:
    """A page of one app's sessions, and the next page's cursor: an app and the store's token."""
    if not names:
        return "", (), None

    app_name, _, token = (cursor or f"{names[0]}/").partition("/")
    if app_name not in names:
        raise InvalidRequest(f"There is no page {cursor!r}")

    page = await context.sessions.list_sessions(
        app_name=app_name, user_id=context.identity.subject, limit=PAGE, page_token=token or None
    )
    rest = names[names.index(app_name) + 1 :]
    following: str | None = None
    if page.next_page_token:
        following = f"{app_name}/{page.next_page_token}"
    elif rest:
        following = f"{rest[0]}/"
    return app_name, page.sessions, following


def _uri(app_name: str, session_id: str) -> str:
    return f"{SCHEME}://{app_name}/sessions/{session_id}"


class _Outcome(NamedTuple):
    """The result of a run, the requests that it waits for, or that it starts later."""

    run: Run
    text: str
    media: list[Part]
    requests: dict[str, FunctionCall]
    """Questions to a person, by the id of the call."""
    waiting: list[FunctionCall]
    """Calls that somebody other than the caller answers."""


class _AppCall:
    """A call of an app's tool."""

    def __init__(self, ctx: Context, context: RequestContext, params: types.CallToolRequestParams) -> None:
        self._ctx = ctx
        self._context = context
        self._params = params
        arguments = params.arguments or {}
        session_id = params.request_state or arguments.get("session_id")
        if session_id is not None and not isinstance(session_id, str):
            raise InvalidRequest("session_id is text")

        self._is_new = session_id is None
        user_id = context.identity.subject
        if session_id:
            self._key = SessionKey(params.name, user_id, session_id)
        else:
            self._key = context.new_session_key(lambda new_id: SessionKey(params.name, user_id, new_id))
        self._said = 0

    async def result(self) -> Any:
        message = await self._message()
        for _ in range(MAX_ROUNDS):
            outcome = await self._run(message)
            if outcome.run.status is RunStatus.FAILED:
                return failed_result(outcome.run.error.message if outcome.run.error is not None else "The run failed")
            if not outcome.requests and not outcome.waiting:
                return self._finished(outcome)

            questions = {name: question for name, call in outcome.requests.items() if (question := _question(call))}
            if len(questions) < len(outcome.requests) + len(outcome.waiting) or not self._can_ask():
                return self._unanswered(outcome)
            if self._ctx.protocol_version >= STATELESS_SINCE:
                requests: Any = {name: types.ElicitRequest(params=question) for name, question in questions.items()}
                return types.InputRequiredResult(input_requests=requests, request_state=self._key.session_id)

            session = await self._context.find_session(self._key)
            parts: list[Part] = []
            for name, question in questions.items():
                answer = await self._ctx.session.elicit_form(
                    question.message, question.requested_schema, related_request_id=self._ctx.request_id
                )
                parts.append(response_part(session, name, _answer(outcome.requests[name].name, answer)))

            message = Content(role="user", parts=parts)

        return failed_result(f"The agent has asked {MAX_ROUNDS} times")

    async def _message(self) -> Content:
        """The user's message, or the answers of a repeated call."""
        if self._params.request_state is not None:
            session = await self._context.find_session(self._key)
            parts: list[Part] = []
            for name, answer in (self._params.input_responses or {}).items():
                if isinstance(answer, types.ElicitResult):
                    part = response_part(session, name, None)
                    assert part.function_response is not None
                    parts.append(response_part(session, name, _answer(part.function_response.name, answer)))
            if not parts:
                raise InvalidRequest("The repeated call answers nothing")
            return Content(role="user", parts=parts)

        text = (self._params.arguments or {}).get("message")
        if not isinstance(text, str) or not text:
            raise InvalidRequest("message is missing")

        if self._is_new:
            await self._context.apps.load(self._key.app_name)
            await self._context.sessions.create_session(**self._key._asdict())
        else:
            await self._context.find_session(self._key)

        return Content(role="user", parts=[Part(text=text)])

    async def _run(self, message: Content) -> _Outcome:
        arguments: JsonObject = {}
        if self._params.request_state is None:  # else they are those of the call that is repeated with answers
            arguments = self._params.arguments or {}
        request = AgentRunRequest(
            **self._key._asdict(),
            new_message=message,
            streaming=True,
            start_at=seconds(arguments, "start_at", location=("arguments",)),
            delay_seconds=seconds(arguments, "delay_seconds", location=("arguments",)),
        )
        run, attachment = await start(self._context, request)
        assert attachment is not None

        if run.is_delayed:
            attachment.close()
            time = datetime.fromtimestamp(run.start_at or 0.0, UTC).isoformat(timespec="seconds")
            return _Outcome(run, f"The agent starts at {time}. Its answer will be in the conversation.", [], {}, [])

        is_over = False
        try:
            outcome = await self._follow(attachment)
            is_over = True
            return outcome
        finally:
            attachment.close()
            if not is_over:
                cancel_in_background(self._context, run.id)

    async def _follow(self, attachment: Attachment) -> _Outcome:
        reader = StepReader()
        texts: dict[str, list[str]] = {}
        media: list[Part] = []
        requests: dict[str, FunctionCall] = {}
        waiting: list[FunctionCall] = []
        while True:
            new = ""
            for step in await reader.next(attachment):
                if isinstance(step, RunEnded):
                    await self._report(new)
                    text = "".join(piece for pieces in texts.values() for piece in pieces)
                    return _Outcome(step.run, text, media, requests, waiting)

                if isinstance(step, TextStep) and not step.is_thought:
                    texts.setdefault(step.message_id, []).append(step.text)
                    new += step.text
                elif isinstance(step, CorrectionStep):
                    texts[step.message_id] = [step.text]
                elif isinstance(step, MediaStep):
                    media.append(step.part)
                elif isinstance(step, CallStep):
                    if step.is_request:
                        requests[step.call.id or ""] = step.call
                    elif step.is_open:
                        waiting.append(step.call)

            await self._report(new)

    async def _report(self, text: str) -> None:
        """Progress is the number of characters; its message is the new text."""
        if text:
            self._said += len(text)
            await self._ctx.session.report_progress(self._said, message=text)

    def _can_ask(self) -> bool:
        offered = self._ctx.session.client_capabilities
        if offered is None or offered.elicitation is None:
            return False
        return self._ctx.protocol_version >= STATELESS_SINCE or self._ctx.session.can_send_request

    def _finished(self, outcome: _Outcome) -> types.CallToolResult:
        content: list[Any] = []
        if outcome.text or not outcome.media:
            content.append(types.TextContent(text=outcome.text))
        structured = {"text": outcome.text, "session_id": self._key.session_id}
        return types.CallToolResult(
            content=content + [media_content(part) for part in outcome.media], structured_content=structured
        )

    def _unanswered(self, outcome: _Outcome) -> types.CallToolResult:
        calls = [*outcome.requests.values(), *outcome.waiting]
        asked = ", ".join(f"{call.name}({arguments_of(call)})" for call in calls)
        return failed_result(
            f"{outcome.text}\nThe agent waits for a person's answer, which this client can't get: {asked}. It can be "
            f"given on the server, in the session {self._key.session_id}."
        )


def media_content(part: Part) -> Any:
    blob = part.inline_data
    if blob is None or blob.data is None:
        return types.TextContent(text=link_to(part))

    kind = blob.mime_type or "application/octet-stream"
    data = msgspec.to_builtins(blob.data)
    if kind.startswith("image/"):
        return types.ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return types.AudioContent(data=data, mime_type=kind)

    return types.TextContent(text=link_to(part))


def failed_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text.strip())], is_error=True)


def _question(call: FunctionCall) -> types.ElicitRequestFormParams | None:
    """None for logins, which have no form, and for requests that others than the client's user answer."""
    args = call.args or {}
    if call.name == REQUEST_CREDENTIAL or policy_of(call) is not None:
        return None

    if call.name == REQUEST_CONFIRMATION:
        original = as_object(args.get("originalFunctionCall"))
        hint = as_object(args.get("toolConfirmation")).get("hint") or "The agent asks for an approval."
        shown = f"{hint}\n{original.get('name')}({wire.encode(original.get('args') or {}).decode()})"
        return types.ElicitRequestFormParams(message=shown, requested_schema=_APPROVAL)

    message = str(args.get("message") or "The agent asks for input.")
    return types.ElicitRequestFormParams(message=message, requested_schema=_form(args.get("response_schema")))


def _form(schema: JsonValue) -> JsonObject:
    """Forms have flat objects only; other schemas become a form with one value."""
    schema = as_object(schema)
    properties = as_object(schema.get("properties"))
    if properties and all(as_object(schema).get("type") in _PRIMITIVES for schema in properties.values()):
        return {"type": "object", "properties": properties, "required": list(schema.get("required") or ())}
    kind = schema.get("type") if schema.get("type") in _PRIMITIVES else "string"
    return {"type": "object", "properties": {"result": {"type": kind}}, "required": ["result"]}


def _answer(name: str | None, elicited: types.ElicitResult) -> JsonObject:
    """Converts the client's result: a confirmation, the values of a form, or that nothing was given."""
    content: JsonObject = dict(elicited.content or {}) if elicited.action == "accept" else {}
    if name == REQUEST_CONFIRMATION:
        return {"confirmed": bool(content.get("approve"))}
    return content if elicited.action == "accept" else {"error": elicited.action}
