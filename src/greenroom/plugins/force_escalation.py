"""Makes agents ask a stronger model for advice when they don't do so on their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.log.state import events_of_run
from greenroom.plugins.plugin import PerRunPlugin
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionResponse
from greenroom.records.event import Event
from greenroom.records.generation import FunctionCallingConfig, ToolConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.model_consult import DEFAULT_NAME, ModelConsultTool, successful_consults
from greenroom.tools.tool import BaseTool

CONSULT_REQUIRED = "consult_required"


@dataclass
class _ConsultState:
    """The plugin's knowledge about one run."""

    forced: int = 0
    """Consults that were forced."""

    without_tool: set[str] = field(default_factory=set[str])
    """Agents that lack the tool, or have no consults left."""


class ForceEscalationPlugin(PerRunPlugin[_ConsultState]):
    """Forces agents that have the consult tool to call it: with force_first_consult as a run's first step, and with
    force_on_repeat after that many equal calls of another tool since the last consult; at most max_forced times a run.

    require_consult_before: tools that are refused, with `{"status": "consult_required"}`, until
        there was a consult in the session; at most max_refusals replies a run are refused so, and
        no call that a person has approved. None means no limit, or never. Nothing is forced or
        refused once no consults are left.

    Source: ADK's ForceEscalationPlugin.
    """

    def __init__(
        self,
        *,
        name: str = "model_consult_force_escalation",
        tool_name: str = DEFAULT_NAME,
        force_first_consult: bool = True,
        force_on_repeat: int | None = 3,
        max_forced: int | None = 2,
        require_consult_before: Collection[str] | None = None,
        max_refusals: int | None = 2,
    ) -> None:
        super().__init__(name)
        if force_on_repeat is not None and force_on_repeat < 1:
            raise AgentConfigError("ForceEscalationPlugin: force_on_repeat must be 1 or more")
        if isinstance(require_consult_before, str) or tool_name in (require_consult_before or ()):
            raise AgentConfigError(
                f"ForceEscalationPlugin: require_consult_before lists tools other than {tool_name!r}"
            )

        self.tool_name = tool_name
        self._force_first_consult = force_first_consult
        self._force_on_repeat = force_on_repeat
        self._max_forced = max_forced
        self._guarded = frozenset(require_consult_before or ())
        self._max_refusals = max_refusals

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        run = self._runs.setdefault(callback_context.invocation_id, _ConsultState())
        tool = llm_request.tools_dict.get(self.tool_name)
        if tool is None or (isinstance(tool, ModelConsultTool) and not tool.has_remaining_budget(callback_context)):
            run.without_tool.add(callback_context.agent_name)
            return

        run.without_tool.discard(callback_context.agent_name)

        if self._max_forced is not None and run.forced >= self._max_forced:
            return

        events = events_of_run(callback_context.session.events, callback_context.invocation_id)
        if self._is_first_step(events, callback_context.agent_name) or self._is_repeating(events):
            run.forced += 1
            calling = FunctionCallingConfig(mode="ANY", allowed_function_names=[self.tool_name])
            config = llm_request.config.tool_config or ToolConfig()
            llm_request.config.tool_config = msgspec.structs.replace(
                config,
                function_calling_config=calling,
            )

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        run = self._runs.setdefault(tool_context.invocation_id, _ConsultState())
        if (
            tool.name not in self._guarded
            or tool_context.tool_confirmation is not None
            or tool_context.agent_name in run.without_tool
            or successful_consults(tool_context.session.events, self.tool_name)
        ):
            return None

        events = events_of_run(tool_context.session.events, tool_context.invocation_id)
        refused = sum(_has_refusal(event) for event in events)
        if self._max_refusals is not None and refused >= self._max_refusals:
            return None

        message = f"{tool.name} has not run: call {self.tool_name} first, then call {tool.name} again."
        return {"status": CONSULT_REQUIRED, "message": message}

    def _is_first_step(self, events: list[Event], agent_name: str) -> bool:
        return self._force_first_consult and not any(
            event.author == agent_name or self._is_consult(event) for event in events
        )

    def _is_repeating(self, events: list[Event]) -> bool:
        """Whether the newest results complete a number of equal calls since the last consult."""
        counts: Counter[bytes] = Counter()
        calls: dict[str | None, bytes] = {}
        is_repeating = False
        for event in events if self._force_on_repeat is not None else ():
            for call in event.get_function_calls():
                calls[call.id] = msgspec.json.encode([call.name, call.args or {}], order="sorted")

            if event.author != "user":
                responses = event.get_function_responses()
            else:
                responses = []

            if not responses:
                continue

            if self._is_consult(event):
                counts.clear()

            made_calls = [
                calls.get(response.id, b"") for response in responses if _status(response) != CONSULT_REQUIRED
            ]
            counts.update([] if self._is_consult(event) else made_calls)
            is_repeating = any(counts[call] % (self._force_on_repeat or 1) == 0 for call in made_calls if counts[call])

        return is_repeating

    def _is_consult(self, event: Event) -> bool:
        responses = [one for one in event.get_function_responses() if one.name == self.tool_name]
        return any(_status(response) != "invalid_request" for response in responses)


def _status(response: FunctionResponse) -> object:
    return (response.response or {}).get("status")


def _has_refusal(event: Event) -> bool:
    return any(_status(response) == CONSULT_REQUIRED for response in event.get_function_responses())
