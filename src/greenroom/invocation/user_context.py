"""What instructions, callbacks and tools get to see and do of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.auth import AuthConfig, AuthCredential, CredentialRequest, public_config
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.event import EventActions, ToolConfirmation
from greenroom.records.listings import SearchMemoryResponse
from greenroom.records.run import Caller, RunConfig
from greenroom.records.session import Session
from greenroom.records.state import TEMP_PREFIX, State


def temporary_key(auth_config: AuthConfig) -> str:
    """Where in this run's state a granted credential lies. `temp:` keys never leave the run."""
    return f"{TEMP_PREFIX}{auth_config.credential_key}"


class ReadonlyContext:
    """For instruction providers and toolsets: look, don't touch."""

    def __init__(self, invocation_context: InvocationContext) -> None:
        self._invocation_context = invocation_context

    @property
    def invocation_context(self) -> InvocationContext:
        """The run as the agent itself sees it."""
        return self._invocation_context

    @property
    def invocation_id(self) -> str:
        return self._invocation_context.invocation_id

    @property
    def agent_name(self) -> str:
        return self._invocation_context.agent.name

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

    def get_auth_response(self, auth_config: AuthConfig) -> AuthCredential | None:
        """What the user granted in this run; None until then."""
        kept: JsonValue = self._invocation_context.session.state.get(temporary_key(auth_config))
        if kept is None:
            return None
        try:
            return wire.from_plain(kept, AuthCredential)
        except InvalidRequest:
            return None


class Context(ReadonlyContext):
    """For callbacks and tools. What is written to `state` and `actions` is stored with the event that is being made.

    function_call_id, tool_confirmation, requested_credential: of one call of a tool, whose actions become those of the
    event with the call's response. agent_calls: how many agents were asked within the call, see `AgentTool`.
    """

    def __init__(
        self,
        invocation_context: InvocationContext,
        actions: EventActions | None = None,
        *,
        function_call_id: str | None = None,
        tool_confirmation: ToolConfirmation | None = None,
        args: JsonObject | None = None,
    ) -> None:
        super().__init__(invocation_context)
        self.actions = actions if actions is not None else EventActions()
        self.function_call_id = function_call_id
        self.tool_confirmation = tool_confirmation
        self.requested_credential: CredentialRequest | None = None
        self.agent_calls = 0
        self._args = args or {}
        self._state: State | None = None

    def get_invocation_context(self) -> InvocationContext:
        """A copy of the invocation context."""
        return self._invocation_context.model_copy()

    @property
    def state(self) -> State:
        if self._state is None:
            self._state = State(self._invocation_context.session.state, self.actions.state_delta)
        return self._state

    def collect_actions(self) -> EventActions:
        """The actions, with in-place changes of state values taken in."""
        if self._state is not None:
            self._state.collect()
        return self.actions

    async def save_artifact(self, filename: str, artifact: Part, custom_metadata: JsonObject | None = None) -> int:
        """Returns the version. Raises AgentConfigError when the app has no artifact service."""
        version = await self._artifacts().save_artifact(
            **self._place(), filename=filename, artifact=artifact, custom_metadata=custom_metadata
        )
        self.actions.artifact_delta[filename] = version
        return version

    async def load_artifact(self, filename: str, version: int | None = None) -> Part | None:
        return await self._artifacts().load_artifact(**self._place(), filename=filename, version=version)

    async def list_artifacts(self) -> list[str]:
        return await self._artifacts().list_artifact_keys(**self._place())

    async def search_memory(self, query: str) -> SearchMemoryResponse:
        """Raises AgentConfigError when the app has no memory service."""
        return await self._memory().search_memory(
            app_name=self._invocation_context.app_name, user_id=self._invocation_context.user_id, query=query
        )

    async def add_session_to_memory(self) -> None:
        await self._memory().add_session_to_memory(self._invocation_context.session)

    async def load_credential(self, auth_config: AuthConfig) -> AuthCredential | None:
        """What this user granted for that config, in whichever run. It may have expired: `expiresAt` says when."""
        granted = self.get_auth_response(auth_config)
        if granted is not None:
            return granted
        return await self._invocation_context.services.credentials.load_credential(**self._whose(auth_config))

    async def save_credential(self, auth_config: AuthConfig, credential: AuthCredential | None = None) -> None:
        """Keep a credential for this user; without one, the config's exchanged one."""
        credential = credential or auth_config.exchanged_auth_credential
        if credential is None:
            raise AgentConfigError("There is no credential to save")
        self.keep_for_this_run(auth_config, credential)
        await self._invocation_context.services.credentials.save_credential(
            **self._whose(auth_config), credential=credential
        )

    def keep_for_this_run(self, auth_config: AuthConfig, credential: AuthCredential) -> None:
        """Put a credential where `get_auth_response` finds it, and nobody does after the run."""
        self._invocation_context.session.state[temporary_key(auth_config)] = wire.to_plain(credential)

    def _whose(self, auth_config: AuthConfig) -> dict[str, str]:
        return {
            "app_name": self._invocation_context.app_name,
            "user_id": self._invocation_context.user_id,
            "credential_key": auth_config.credential_key or "",
        }

    def _place(self) -> dict[str, str]:
        session = self._invocation_context.session
        return {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}

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
        """The same for every attempt at this call, and for no other call: made of run, call id and arguments."""
        parts = [self.invocation_id, self.function_call_id, sorted(self._args.items())]
        return hashlib.sha256(wire.encode(parts)).hexdigest()

    def request_confirmation(self, *, hint: str = "", payload: JsonValue = None) -> None:
        """Ask a person before the tool goes on; the tool then returns, and is called anew with the answer."""
        self.actions.requested_tool_confirmations[self._call_id()] = ToolConfirmation(hint=hint, payload=payload)

    def request_credential(self, auth_config: AuthConfig | JsonObject, *, only_public_hosts: bool = False) -> None:
        """Ask the user to grant access; the tool then returns, and is called anew when that is done, with the
        credential in `get_auth_response`.

        auth_config: with the app's own client id and secret, which go no further than the credential service.
        only_public_hosts: its endpoints may not lead into the server's own network.
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
