"""An agent on another server, over the A2A protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.human_input.requests import authenticate, toolset_request
from greenroom.errors import A2AClientError, AgentConfigError, MissingExtra
from greenroom.invocation.context import ABANDONED, InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthSchemeLike,
    CredentialRequest,
    credential_parts,
    to_auth_scheme,
)
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part, quoted
from greenroom.records.event import Event
from greenroom.records.identifiers import new_event_id, new_function_call_id
from greenroom.records.run import StreamingMode
from greenroom.records.service_uri import is_loopback
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import RemoteAgentSpan, operation_span
from greenroom.telemetry.span import Span

try:
    import httpx
    from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
    from a2a.client.card_resolver import parse_agent_card
    from a2a.client.service_parameters import with_a2a_extensions
    from a2a.types import AgentCard, Message, Role, SendMessageRequest, StreamResponse, Task, TaskState
    from google.protobuf.json_format import MessageToDict, ParseError
except ImportError as error:
    raise MissingExtra("a2a", "a2a-sdk") from error

from greenroom.a2a.metadata import EXTENSION, from_value
from greenroom.a2a.parts import LONG_RUNNING, to_a2a_part
from greenroom.agents.remote_a2a.card import fetch_card, is_url, read_card, usable_card
from greenroom.agents.remote_a2a.config import A2aRemoteAgentConfig, ParametersConfig, PartConverter
from greenroom.agents.remote_a2a.message import (
    AUTH_CALL,
    CALLS,
    CONTEXT_ID,
    ERROR,
    INPUT_CALL,
    REQUEST,
    RESPONSE,
    TASK_ID,
    outgoing,
    progress,
)
from greenroom.agents.remote_a2a.task import FAILED, PAUSED, RemoteTask, convert, joined, status_of

_CONNECT_SECONDS = 10.0
_DESCRIPTION_CHARS = 1024
_REQUEST_BYTES = 64 * 1024
_ACTIONS = {"escalate": "escalate", "skipSummarization": "skip_summarization"}


class RemoteA2aAgent(BaseAgent):
    """An agent on another server.

    agent_card: a card, its JSON, a file, or an https URL (http on this machine) of the card or of
        its server.
    description: by default the card's.
    timeout: seconds that the server may be silent, or its task unchanged; 600.
    httpx_client: by default one for each run.
    a2a_client_factory: makes the SDK's clients.
    genai_part_converter, a2a_part_converter: in place of the built-in conversion.
    a2a_request_meta_provider: called with the context and the message; returns metadata of the
        request.
    context_builder: called with the context, the agent's name and the part converter; returns the
        parts of the message and its context id.
    full_history_when_stateless: sends the whole history each time while the server names no
        context.
    use_legacy: False asks ADK servers for their newer form of updates.
    auth_scheme, auth_credential, credential_key: of the requests, per user; without auth_credential
        the user is asked.

    Partial events show the answer as it arrives; one complete event follows with all of it. The ids
    of task and context are in `custom_metadata`. A run that is resumed follows its task; cancelling
    the run cancels the task. A task that needs input or a login is a long-running call, and its
    response continues the task. Raises A2AClientError for a task that failed, and for a server that
    fails; AgentCardResolutionError. Source: ADK 2.13.
    """

    _never_waits = True
    is_remote = True

    def __init__(
        self,
        name: str,
        agent_card: Any,
        *,
        description: str = "",
        httpx_client: httpx.AsyncClient | None = None,
        timeout: float = 600.0,
        genai_part_converter: PartConverter = to_a2a_part,
        a2a_part_converter: PartConverter | None = None,
        a2a_client_factory: ClientFactory | None = None,
        a2a_request_meta_provider: Callable[[InvocationContext, Message], JsonObject] | None = None,
        full_history_when_stateless: bool = False,
        context_builder: Callable[[InvocationContext, str, PartConverter], tuple[list[Any], str | None]] | None = None,
        config: A2aRemoteAgentConfig | None = None,
        use_legacy: bool = True,
        auth_scheme: AuthSchemeLike | None = None,
        auth_credential: AuthCredential | None = None,
        credential_key: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(name=name, description=description, **fields)
        if agent_card is None or agent_card == "":
            raise ValueError("agent_card cannot be None or empty")

        self._source = agent_card if isinstance(agent_card, str) else ""
        self._card: AgentCard | None = None

        if isinstance(agent_card, Mapping):
            try:
                agent_card = parse_agent_card(dict(cast("JsonObject", agent_card)))
            except ParseError as error:
                raise ValueError(f"agent_card of {name!r}: {error}") from error

        if isinstance(agent_card, AgentCard):
            self._card = agent_card
            self.description = description or agent_card.description
        elif not isinstance(agent_card, str):
            raise TypeError(f"agent_card is an AgentCard, a map, a URL or a path, not {type(agent_card).__name__}")

        self._httpx = httpx_client
        self._seconds = timeout
        self._factory = a2a_client_factory
        self._to_a2a = genai_part_converter
        self._config = config or A2aRemoteAgentConfig()
        self._from_a2a = a2a_part_converter or self._config.a2a_part_converter
        self._metadata_of = a2a_request_meta_provider
        self._build = context_builder
        self._sends_all = full_history_when_stateless
        self._is_legacy = use_legacy
        self._auth: AuthConfig | None = None

        if auth_scheme is not None:
            scheme = to_auth_scheme(auth_scheme)
            if scheme.type == "apiKey" and (scheme.in_ or "header") != "header":
                raise AgentConfigError(f"The API key of agent {name!r} can only be sent in a header")

            key = credential_key or f"{name}:{self._source or (self._card and self._card.name)}"
            self._auth = AuthConfig(
                auth_scheme=scheme,
                raw_auth_credential=auth_credential,
                credential_key=key,
            )

    def begin_span(self, parent: Span) -> Span:
        described = {names.AGENT_NAME: self.name, names.AGENT_DESCRIPTION: self.description}
        return operation_span(parent, names.INVOKE_AGENT, self.name, described, kind=RemoteAgentSpan)

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        if ctx.resumed_from is not None:
            reached = progress(self.name, ctx)
        else:
            reached = None

        if reached is not None and reached.is_done:
            return

        headers: dict[str, str] = {}
        if self._auth is not None:
            if not await authenticate(ctx, self._auth):
                request = CredentialRequest(
                    id="",
                    session_id=ctx.session.id,
                    auth_config=self._auth,
                )
                yield await toolset_request(ctx, self.name, self.name, request)
                return

            credential = CallbackContext(ctx).get_auth_response(self._auth)
            if credential is not None:
                parts = credential_parts(self._auth.auth_scheme, credential)
            else:
                parts = None

            if parts is not None:
                headers = {name.lower(): value for name, value in parts.headers.items()}
            else:
                headers = {}

        if not self._is_legacy:
            with_a2a_extensions([EXTENSION])(headers)

        http = self._httpx or httpx.AsyncClient(timeout=httpx.Timeout(self._seconds, connect=_CONNECT_SECONDS))
        try:
            card = await self._resolve(ctx, http, headers)
            async with self._connect(card, http) as client:
                exchange = _RemoteExchange(self, ctx, client, card, headers)
                async with aclosing(exchange.run(reached.to_follow if reached is not None else None)) as events:
                    async for event in events:
                        yield event
        except A2AClientError as error:  # before the message was sent
            yield _with_error(ctx.new_event(), error)
        finally:
            if http is not self._httpx:
                await http.aclose()

    async def _resolve(
        self,
        ctx: InvocationContext,
        http: httpx.AsyncClient,
        headers: Mapping[str, str],
    ) -> AgentCard:
        if self._card is not None:
            return self._card

        if not is_url(self._source):
            self._card = await asyncio.to_thread(read_card, self._source)
            self.description = self.description or self._card.description
            return self._card

        extra_headers: dict[str, str] = {}
        for interceptor in self._config.card_request_interceptors or ():
            if interceptor.before_request is not None:
                extra_headers |= (await interceptor.before_request(ctx)).headers or {}

        card = await fetch_card(self._source, http, {**headers, **extra_headers})
        if not self.description and card.description:
            self.description = quoted(card.description[:_DESCRIPTION_CHARS])

        if not extra_headers and self._auth is None:
            self._card = card

        return card

    def _connect(self, card: AgentCard, http: httpx.AsyncClient) -> Client:
        factory = self._factory
        if factory is None:
            config = ClientConfig(
                httpx_client=http,
                polling=not card.capabilities.streaming,
                supported_protocol_bindings=["JSONRPC", "HTTP+JSON", "GRPC"],
                grpc_channel_factory=_grpc_channel,
            )
            factory = ClientFactory(config)

        try:
            return factory.create(usable_card(card))
        except ValueError as error:
            raise A2AClientError(f"the card of agent {self.name!r} has no usable endpoint: {error}") from error


class _RemoteExchange:
    """A message to the remote agent, and its answer."""

    def __init__(
        self, agent: RemoteA2aAgent, ctx: InvocationContext, client: Client, card: AgentCard, headers: dict[str, str]
    ) -> None:
        self._agent = agent
        self._ctx = ctx
        self._config = agent._config
        self._call = ClientCallContext(state=dict(ctx.session.state), service_parameters=headers)
        self._remote = RemoteTask(
            client, self._call, timeout=agent._seconds, may_subscribe=bool(card.capabilities.streaming)
        )
        self._streams = ctx.run_config.streaming_mode is not StreamingMode.NONE
        self._event_id = new_event_id()
        self._is_announced = False
        self._request: JsonObject = {}

    async def run(self, to_follow: JsonObject | None) -> AsyncGenerator[Event]:
        remote = self._remote
        request = None
        if to_follow is not None:
            remote.task = Task(
                id=str(to_follow[TASK_ID]),
                context_id=str(to_follow.get(CONTEXT_ID) or ""),
            )
            self._is_announced = True
        else:
            request = await self._new_request()
            if isinstance(request, Event):
                yield request
                return
            if not request.message.parts:
                yield self._event(None)
                return

        is_abandoned = False
        try:
            async with aclosing(remote.responses(request)) as responses:
                async for response in responses:
                    for event in self._events(response):
                        shown = await self._after(response, event)
                        if shown is not None:
                            yield shown

            if remote.task.status.state in FAILED:
                raise A2AClientError(self._failure())
        except asyncio.CancelledError as error:
            is_abandoned = ABANDONED in error.args
            raise
        except A2AClientError as error:
            failed = self._event(None)
            failed.custom_metadata = {
                **(failed.custom_metadata or {}),
                ERROR: error.reason,
                REQUEST: self._request,
            }
            yield _with_error(failed, error)
        finally:
            if not is_abandoned:
                await remote.cancel()

    async def _new_request(self) -> SendMessageRequest | Event:
        agent = self._agent
        ctx = self._ctx

        sent = outgoing(
            agent.name,
            ctx,
            stateless_history=agent._sends_all,
            forward_session=self._config.forward_session_id_as_context_id,
            mode=self._config.aggregation_mode,
        )
        context_id = sent.context_id
        parts = list[Any]()
        if agent._build is not None:
            parts, given_id = agent._build(ctx, agent.name, agent._to_a2a)
            context_id = given_id or ""
        else:
            for part, is_users in sent.parts:
                for a2a_part in convert([part], agent._to_a2a):
                    if is_users:
                        a2a_part.metadata.update({"is_user_input": True})
                    parts.append(a2a_part)

        message = Message(
            message_id=sent.message_id,
            role=Role.ROLE_USER,
            parts=parts,
            context_id=context_id,
            task_id=sent.task_id,
            extensions=[] if agent._is_legacy else [EXTENSION],
        )
        parameters = ParametersConfig(client_call_context=self._call)
        for interceptor in self._config.request_interceptors or ():
            if interceptor.before_request is not None:
                changed, parameters = await interceptor.before_request(ctx, message, parameters)
                if isinstance(changed, Event):
                    return changed
                message = changed

        self._remote._context = parameters.client_call_context or self._call
        request = SendMessageRequest(message=message)
        if parameters.request_metadata:
            request.metadata.update(parameters.request_metadata)

        if agent._metadata_of is not None:
            request.metadata.update(agent._metadata_of(ctx, message))

        if message.ByteSize() <= _REQUEST_BYTES:
            shown = message
        else:
            shown = Message(message_id=message.message_id)

        self._request = MessageToDict(shown)

        return request

    def _events(self, response: StreamResponse) -> list[Event]:
        remote = self._remote
        config = self._config
        kind = response.WhichOneof("payload") or ""

        converter = {
            "message": config.a2a_message_converter,
            "task": config.a2a_task_converter,
            "status_update": config.a2a_status_update_converter,
            "artifact_update": config.a2a_artifact_update_converter,
        }[kind]
        payload = getattr(response, kind)
        if converter is not None:
            event = converter(payload, self._agent.name, self._ctx, self._agent._from_a2a)
            if event is None:
                return []
            event.custom_metadata = {**self._metadata(), **(event.custom_metadata or {})}
            return [event]

        events: list[Event] = []
        if not self._is_announced and remote.task.id and not remote.is_settled:
            self._is_announced = True
            events.append(self._event(None))  # from here on, a resumed run can follow the task

        if remote.is_settled:
            if remote.task.status.state not in FAILED:
                events.append(self._final_event())
            return events

        if kind == "artifact_update":
            a2a_parts = payload.artifact.parts
        else:
            a2a_parts = payload.status.message.parts

        parts = [part for part in convert(a2a_parts, self._agent._from_a2a) if not part.function_call or self._streams]
        if parts and self._streams:
            if kind != "artifact_update":
                for part in parts:
                    part.thought = True
            events.append(self._event(parts, is_partial=True))

        return events

    def _final_event(self) -> Event:
        """The event that completes the turn: the answer, or the request that the remote agent waits for."""
        remote = self._remote
        status = remote.task.status
        artifacts = [
            part
            for artifact_parts in remote.parts.values()
            for part in joined(convert(artifact_parts, self._agent._from_a2a))
        ]
        status_parts: list[Part] = []
        if status.state in PAUSED or not artifacts:
            status_parts = convert(status.message.parts, self._agent._from_a2a)

        if status.state in PAUSED:
            open_ids = _long_running_ids(status.message.parts)
        else:
            open_ids = set[str]()

        calls: dict[str, JsonObject] = {}
        waiting: list[str] = []
        parts: list[Part] = []
        for part in [*artifacts, *status_parts]:
            call = part.function_call
            if call is not None and call.id in open_ids:
                ours = new_function_call_id()
                calls[ours] = {"id": call.id, "name": call.name}

                name = call.name or ""
                if name.startswith("adk_request_"):  # of the remote's framework; here they would be ours
                    if name == "adk_request_credential":
                        name = AUTH_CALL
                    else:
                        name = INPUT_CALL

                parts.append(Part(function_call=FunctionCall(id=ours, name=name, args=call.args)))
                waiting.append(ours)
            elif call is None and part.function_response is None:  # else a step of the remote, done already
                parts.append(part)

        if status.state in PAUSED and not waiting:
            self._request_input(parts, status.state == TaskState.TASK_STATE_AUTH_REQUIRED)
            waiting = [part.function_call.id or "" for part in parts if part.function_call is not None]

        answers = [part for part in parts if not part.thought]
        event = self._event(answers or parts or None)
        event.long_running_tool_ids = waiting or None
        if calls:
            event.custom_metadata = {**(event.custom_metadata or {}), CALLS: calls}

        for metadata in (remote.task.metadata, status.message.metadata):
            actions: Any = MessageToDict(metadata).get("adk_actions")
            for key, field in _ACTIONS.items():
                if isinstance(actions, dict) and cast("JsonObject", actions).get(key) is True:
                    setattr(event.actions, field, True)

        return event

    def _request_input(self, parts: list[Part], is_login: bool) -> None:
        """Makes the last text a long-running call, which the user's response answers."""
        at = next((index for index in range(len(parts) - 1, -1, -1) if parts[index].text), len(parts))
        question = parts[at].text if at < len(parts) else ""
        name, key = (AUTH_CALL, "auth_required") if is_login else (INPUT_CALL, "input_required")
        call = FunctionCall(id=new_function_call_id(), name=name, args={key: question})
        parts[at : at + 1] = [Part(function_call=call)]

    def _failure(self) -> str:
        status = self._remote.task.status
        text = "".join(part.text or "" for part in convert(status.message.parts, self._agent._from_a2a))
        state = TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()
        return f"task {self._remote.task.id} {state}" + (f": {text}" if text else "")

    def _event(self, parts: list[Part] | None, *, is_partial: bool = False) -> Event:
        event = self._ctx.new_event(content=None if parts is None else Content(role="model", parts=parts))
        if parts is not None:
            event.id = self._event_id
        event.partial = True if is_partial else None
        event.custom_metadata = self._metadata()
        return event

    def _metadata(self) -> JsonObject:
        task = self._remote.task
        metadata: JsonObject = {
            TASK_ID: task.id,
            CONTEXT_ID: task.context_id,
            RESPONSE: status_of(task),
        }
        return {key: value for key, value in metadata.items() if value or key == RESPONSE}

    async def _after(self, response: StreamResponse, event: Event) -> Event | None:
        payload = getattr(response, response.WhichOneof("payload") or "task")
        shown: Event | None = event
        for interceptor in reversed(self._config.request_interceptors or ()):
            if interceptor.after_request is not None and shown is not None:
                shown = await interceptor.after_request(self._ctx, payload, shown)
        return shown


def _with_error(event: Event, error: A2AClientError) -> Event:
    """The agent's last event. As in ADK, the run continues with the next agent, if there is one."""
    event.error_code = error.code
    event.error_message = error.detail
    return event


def _long_running_ids(parts: Sequence[Any]) -> set[str]:
    """The ids of the calls whose responses the remote agent waits for."""
    calls = [from_value(part.data) for part in parts if LONG_RUNNING in part.metadata]
    return {str(cast("JsonObject", call).get("id")) for call in calls if isinstance(call, dict)}


def _grpc_channel(url: str) -> Any:
    """TLS but to this machine, as for HTTP."""
    import grpc

    target = url.partition("//")[2] or url
    if is_loopback(target.rpartition(":")[0] or target):
        return grpc.aio.insecure_channel(target)
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials())
