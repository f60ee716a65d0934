"""The contexts that instructions, callbacks and tools receive."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.invocation.context import DEFAULT_EXPIRES_SECONDS, InvocationContext
from greenroom.invocation.sleep import Waiter, sleep, wait_for
from greenroom.log.state import log_state_of
from greenroom.memory.service import OfMemory, with_metadata
from greenroom.records import wire
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.auth import AuthConfig, AuthCredential, CredentialRequest, public_config
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.event import Event, EventActions, ToolConfirmation, UiWidget
from greenroom.records.genai_types import own
from greenroom.records.listings import ArtifactVersion, MemoryEntry, SearchMemoryResponse
from greenroom.records.run import Caller, RunConfig
from greenroom.records.session import Session
from greenroom.records.state import TEMP_PREFIX, State


def temporary_key(auth_config: AuthConfig) -> str:
    """The key of the run's state that holds a granted credential. `temp:` keys are never stored."""
    return f"{TEMP_PREFIX}{auth_config.credential_key}"


class ReadonlyContext:
    """Read-only access to the run, for instruction providers and toolsets."""

    def __init__(self, invocation_context: InvocationContext) -> None:
        self._invocation_context = invocation_context

    @property
    def invocation_context(self) -> InvocationContext:
        """The invocation context of the agent."""
        return self._invocation_context

    @property
    def invocation_id(self) -> str:
        return self._invocation_context.invocation_id

    @property
    def agent_name(self) -> str:
        """`unknown` in a context that was made without an agent, as tests do."""
        return getattr(self._invocation_context.agent, "name", "unknown")

    @property
    def branch(self) -> str | None:
        return self._invocation_context.branch

    @property
    def user_content(self) -> Content | None:
        return self._invocation_context.user_content

    @property
    def user_id(self) -> str:
        return self._invocation_context.user_id

    @property
    def custom_metadata(self) -> JsonObject:
        """The run's metadata (`RunConfig.custom_metadata`)."""
        return self._invocation_context.run_config.custom_metadata or {}

    @property
    def caller(self) -> Caller | None:
        """The authenticated caller of this run's request; None without authentication."""
        return self._invocation_context.caller

    @property
    def session(self) -> Session:
        return self._invocation_context.session

    @property
    def run_config(self) -> RunConfig:
        return self._invocation_context.run_config

    @property
    def state(self) -> Mapping[str, Any]:
        return MappingProxyType(self._invocation_context.session.state)

    @property
    def is_aborted(self) -> bool:
        """Whether `InvocationContext.abort()` was called in this run."""
        return self._invocation_context.is_aborted

    def get_credential(self, key: str) -> AuthCredential | None:
        """The credential with that `AuthConfig.credential_key`, if the user granted it in this run."""
        return self._invocation_context.credential_by_key.get(key)

    def get_auth_response(self, auth_config: AuthConfig) -> AuthCredential | None:
        """The credential that the user granted in this run; None until then."""
        stored: JsonValue = self._invocation_context.session.state.get(temporary_key(auth_config))
        if stored is None:
            return None
        try:
            return wire.from_plain(stored, AuthCredential)
        except InvalidRequest:
            return None


class Context(ReadonlyContext):
    """Access to the run for callbacks and tools. Changes of `state` and `actions` are stored with
    the next event.

    Tests of callbacks, tools and nodes make their own: `Context(invocation_context,
    node_path="wf@1/node@1")`.

    `function_call_id`, `tool_confirmation` and `requested_credential` are set in tools; the fields about
    a node are set in nodes of workflows.
    """

    event_author: str = ""
    actions: EventActions
    """In a tool, these become the actions of the event with the call's response."""
    function_call_id: str | None
    """The id of the tool call."""
    tool_confirmation: ToolConfirmation | None
    """The user's answer to the tool's request for approval."""
    requested_credential: CredentialRequest | None
    """The credential that the tool has requested."""
    approvals: ApprovalPolicy | None = None
    """The tool's policy for the approval that it has requested."""
    agent_calls: int
    """Number of agents that were called within the tool call, see `AgentTool`."""
    node: Any
    """The node that runs."""
    node_path: str
    """The node's path as in events, `wf@1/node@2`."""
    run_id: str
    """The part of the path after its last `@`."""
    resume_inputs: Mapping[str, JsonValue]
    """The answers to the node's requests, by interrupt id."""
    error: Exception | None = None
    """The error of an attempt that has failed."""
    error_node_path: str = ""
    """The path of the node in which the attempt failed."""
    _output: Any = None

    def __init__(
        self,
        invocation_context: InvocationContext,
        *,
        event_actions: EventActions | None = None,
        function_call_id: str | None = None,
        tool_confirmation: ToolConfirmation | None = None,
        parent_ctx: Context | None = None,
        node: Any = None,
        node_path: str = "",
        run_id: str = "",
        resume_inputs: Mapping[str, JsonValue] | None = None,
        attempt_count: int = 1,
        args: JsonObject | None = None,
    ) -> None:
        super().__init__(invocation_context)
        self.actions = event_actions if event_actions is not None else EventActions()
        self.function_call_id = function_call_id
        self.tool_confirmation = tool_confirmation
        if node is not None and not node_path:
            run_id = run_id or "1"
            above = f"{parent_ctx.node_path}/" if parent_ctx is not None and parent_ctx.node_path else ""
            node_path = f"{above}{node.name}@{run_id}"

        self.parent_ctx = parent_ctx
        self.node = node
        self.node_path = node_path
        self.run_id = run_id
        self.resume_inputs = resume_inputs or {}
        self.attempt_count = attempt_count
        self.requested_credential = None
        self.agent_calls = 0
        self._children = 0
        self._args = args or {}
        self._state: State | None = None

    @property
    def interrupt_ids(self) -> set[str]:
        """The ids of the node's requests that have no answer yet; a copy."""
        return set()

    @property
    def output(self) -> Any:
        """The node's output, which may be set in place of yielding it."""
        return self._output

    @output.setter
    def output(self, output: Any) -> None:
        if output is not None and self._output is not None:
            raise ValueError("The node has an output already; a run of a node has one at most")
        self._output = output

    @property
    def route(self) -> JsonValue:
        """The node's route, which may be set in place of yielding it."""
        return self.actions.route

    @route.setter
    def route(self, route: JsonValue) -> None:
        self.actions.route = route

    async def run_node(
        self,
        node: object,
        node_input: object = None,
        *,
        use_as_output: bool = False,
        run_id: str | None = None,
        use_sub_branch: bool = False,
        override_branch: str | None = None,
        override_isolation_scope: str | None = None,
        raise_on_wait: bool = False,
    ) -> Any:
        """Runs another node within this one and returns its output. On resume a child that has an
        output returns it at once, so call them in a fixed order, or give each a `run_id`. A tool of
        an LLM agent may do so, too; one whose child can wait for a person needs on_interrupt="retry".

        use_as_output: the child's output is this node's. raise_on_wait: as ADK has it; a child that
        waits always suspends this node. Raises DynamicNodeFailError when the child fails,
        ValueError in a node without `rerun_on_resume`, AgentConfigError outside of a workflow.
        """
        ctx = self._invocation_context
        run_child = ctx.node_runner.run_child if ctx.node_runner is not None else None
        if not self.node_path and self.function_call_id is not None and ctx.agent.run_node_of_tool is not None:
            self._children += 1
            run_id = run_id or f"{self.function_call_id}-{self._children}"
            run_child = functools.partial(ctx.agent.run_node_of_tool, ctx, self.function_call_id)

        if run_child is None:
            raise AgentConfigError("run_node() runs nodes within a node of a workflow or a tool of an LLM agent")
        return await run_child(
            node,
            node_input,
            use_as_output=use_as_output,
            run_id=run_id,
            use_sub_branch=use_sub_branch,
            branch=override_branch,
            isolation_scope=override_isolation_scope,
        )

    async def sleep(
        self,
        seconds: float | None = None,
        *,
        until: datetime | str | None = None,
        max_late_seconds: float | None = None,
    ) -> float:
        """Waits in a node of a workflow, without a task or memory: the run ends as waiting, and continues at the time.
        Then the node runs again from its start, and the call returns at once. Call `sleep` and `wait_for` in a fixed
        order.

        Returns the seconds by which it is late. until: UTC if it has no offset. max_late_seconds: a run that can
        continue only that much later is cancelled. Raises ValueError, also in a node without `rerun_on_resume`, and
        AgentConfigError outside of a node.
        """
        return await sleep(self._waiter(), seconds, until, max_late_seconds)

    async def wait_for(self, signal: str, *, timeout: float | None = None) -> JsonValue:
        """Like `sleep`, until a signal is sent to the run. Returns its value. timeout: seconds; then TimeoutError."""
        return await wait_for(self._waiter(), signal, timeout)

    def signal_url(
        self, signal: str, *, value: JsonValue = None, expires_seconds: float = DEFAULT_EXPIRES_SECONDS
    ) -> str:
        """A signed URL that sends a signal to this run once, without an API key, to hand out in a mail.

        A person who opens it is asked to confirm; a program posts to it. value: of the signal; by default the body of
        the post. Of the URLs for the same signal that one call of a tool makes, or one place in a node's code, one
        counts. Raises NotOffered on a server without `public_url` and `webhook_secrets`, AgentConfigError without a
        server, and ValueError.
        """
        return self._invocation_context.signal_url(
            signal, value=value, expires_seconds=expires_seconds, place=self._place
        )

    @property
    def _place(self) -> str | None:
        return self.function_call_id

    def _waiter(self) -> Waiter:
        raise AgentConfigError("sleep() and wait_for() are for nodes of workflows; a model has tools of that name")

    def get_invocation_context(self) -> InvocationContext:
        """A copy of the invocation context."""
        return self._invocation_context.model_copy()

    @property
    def state(self) -> State:
        if self._state is None:
            self._state = State(self._invocation_context.session.state, self.actions.state_delta)
        return self._state

    def collect_actions(self) -> EventActions:
        """The actions, including values of the state that were changed in place."""
        if self._state is not None:
            self._state.collect()
        return self.actions

    async def save_artifact(self, filename: str, artifact: Part, custom_metadata: JsonObject | None = None) -> int:
        """Returns the version. Raises AgentConfigError when the app has no artifact service."""
        artifact = own(artifact)
        redaction = self._invocation_context.services.redaction
        if redaction is not None:
            artifact = await redaction.redact_part(artifact)
        version = await self._artifacts().save_artifact(
            **self._session_key(), filename=filename, artifact=artifact, custom_metadata=custom_metadata
        )
        self.actions.artifact_delta[filename] = version
        return version

    async def load_artifact(self, filename: str, version: int | None = None) -> Part | None:
        return await self._artifacts().load_artifact(**self._session_key(), filename=filename, version=version)

    async def list_artifacts(self) -> list[str]:
        return await self._artifacts().list_artifact_keys(**self._session_key())

    async def get_artifact_version(self, filename: str, version: int | None = None) -> ArtifactVersion | None:
        """Metadata of a version, by default the newest; None if there is none."""
        return await self._artifacts().get_artifact_version(**self._session_key(), filename=filename, version=version)

    async def search_memory(self, query: str) -> SearchMemoryResponse:
        """Raises AgentConfigError when the app has no memory service."""
        return await self._memory().search_memory(
            app_name=self._invocation_context.app_name, user_id=self._invocation_context.user_id, query=query
        )

    async def add_session_to_memory(self) -> None:
        ctx = self._invocation_context
        session = ctx.session
        if session.events.skipped:
            session = await ctx.services.sessions.get_session(**self._session_key()) or session
        await self._memory().add_session_to_memory(session)

    async def add_events_to_memory(
        self, *, events: Sequence[Event], custom_metadata: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Adds events of this session, except those stored already. custom_metadata: for all entries."""
        events = [await self._redacted(with_metadata(event, custom_metadata)) for event in events]
        await self._memory().add_events_to_memory(**self._session_key(), events=events)

    async def add_memory(
        self, *, memories: Sequence[MemoryEntry], custom_metadata: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Stores entries for this user that belong to no session. custom_metadata: for all of them."""
        ctx = self._invocation_context
        entries = [await self._redacted(with_metadata(entry, custom_metadata)) for entry in memories]
        await self._memory().add_memories(app_name=ctx.app_name, user_id=ctx.user_id, memories=entries)

    async def _redacted(self, entry: OfMemory) -> OfMemory:
        """An event or entry as it may be stored."""
        redaction = self._invocation_context.services.redaction
        if redaction is None or entry.content is None:
            return entry
        return msgspec.structs.replace(entry, content=await redaction.redact_content(entry.content))

    async def delete_memory(self, memory_id: str) -> None:
        """Deletes the entry with this id from the user's memory, if it exists."""
        ctx = self._invocation_context
        await self._memory().delete_memory(app_name=ctx.app_name, user_id=ctx.user_id, memory_id=memory_id)

    def render_ui_widget(self, ui_widget: UiWidget) -> None:
        """Makes UIs show a widget with the event. Raises InvalidRequest if the event has a widget with this id."""
        widgets = self.actions.render_ui_widgets or []
        if any(widget.get("id") == ui_widget.id for widget in widgets):
            raise InvalidRequest(f"The event has a widget {ui_widget.id!r} already")
        self.actions.render_ui_widgets = [*widgets, wire.to_plain(ui_widget)]

    async def load_credential(self, auth_config: AuthConfig) -> AuthCredential | None:
        """The credential that this user granted for the config in any run. It may have expired, see `expiresAt`."""
        granted = self.get_auth_response(auth_config)
        if granted is not None:
            return granted
        return await self._invocation_context.services.credentials.load_credential(
            **self._credential_owner(auth_config)
        )

    async def save_credential(self, auth_config: AuthConfig, credential: AuthCredential | None = None) -> None:
        """Stores a credential for this user; by default the config's exchanged one."""
        credential = credential or auth_config.exchanged_auth_credential
        if credential is None:
            raise AgentConfigError("There is no credential to save")
        self.keep_for_this_run(auth_config, credential)
        await self._invocation_context.services.credentials.save_credential(
            **self._credential_owner(auth_config), credential=credential
        )

    def keep_for_this_run(self, auth_config: AuthConfig, credential: AuthCredential) -> None:
        """Makes a credential available to `get_auth_response` until the run ends."""
        self._invocation_context.session.state[temporary_key(auth_config)] = wire.to_plain(credential)
        self._invocation_context.credential_by_key[auth_config.credential_key or ""] = credential

    def _credential_owner(self, auth_config: AuthConfig) -> dict[str, str]:
        return {
            "app_name": self._invocation_context.app_name,
            "user_id": self._invocation_context.user_id,
            "credential_key": auth_config.credential_key or "",
        }

    def _session_key(self) -> dict[str, Any]:
        return self._invocation_context.session.key._asdict()

    def _artifacts(self):
        if self._invocation_context.artifact_service is None:
            raise AgentConfigError("Artifacts are used, but the runner has no artifact service")
        return self._invocation_context.artifact_service

    def _memory(self):
        if self._invocation_context.memory_service is None:
            raise AgentConfigError("Memory is used, but the runner has no memory service")
        return self._invocation_context.memory_service

    @property
    def idempotency_key(self) -> str:
        """A key that all attempts of this call share, and no other call: a hash of run, call id and arguments."""
        parts = [self._run_of_call(), self.function_call_id, sorted(self._args.items())]
        return hashlib.sha256(wire.encode(parts)).hexdigest()

    def _run_of_call(self) -> str:
        """The id of the run that made the call: another one, where that run is retried in a fork."""
        ctx = self._invocation_context
        run = log_state_of(ctx.session.events).find_run(ctx.invocation_id)
        call = run.call(self.function_call_id, ctx.agent.name, ctx.branch) if run is not None else None
        return call.event.invocation_id if call is not None and call.event is not None else ctx.invocation_id

    def request_confirmation(
        self, *, hint: str | None = None, payload: JsonValue = None, approvals: ApprovalPolicy | None = None
    ) -> None:
        """Asks a person for confirmation. The tool then returns, and is called again with the answer.

        approvals: says who answers, in place of the app's policy.
        """
        self.approvals = approvals
        self.actions.requested_tool_confirmations[self._call_id()] = ToolConfirmation(hint=hint or "", payload=payload)

    def request_credential(self, auth_config: AuthConfig | JsonObject, *, only_public_hosts: bool = False) -> None:
        """Asks the user to log in. The tool then returns, and is called again afterwards, with the
        credential in `get_auth_response`.

        auth_config: with the app's own client id and secret, which go no further than the credential
        service. only_public_hosts: its endpoints may not lead into the server's own network.
        """
        config = auth_config if isinstance(auth_config, AuthConfig) else wire.from_plain(auth_config, AuthConfig)
        call_id = self._call_id()
        self.requested_credential = CredentialRequest(
            id="", session_id=self.session.id, auth_config=config, only_public_hosts=only_public_hosts
        )
        self.actions.requested_auth_configs[call_id] = wire.to_plain(public_config(config))

    def _call_id(self) -> str:
        if self.function_call_id is None:
            raise AgentConfigError("Only a tool that a model called can ask for a confirmation or a credential")
        return self.function_call_id


CallbackContext = Context
ToolContext = Context
