"""Evaluation sets, their cases, and results; names and JSON are ADK's.

In files the names are snake_case, over HTTP camelCase; both are read in either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata, GroundingMetadata
from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.session import Session
from greenroom.records.tool_declaration import Tool

_ID = re.compile(r"[A-Za-z0-9_]{1,200}")


class EvalStatus(IntEnum):
    PASSED = 1
    FAILED = 2
    NOT_EVALUATED = 3
    INFORMATIONAL = 4


class RubricContent(Record, kw_only=True):
    """text_property: what must hold, as a sentence."""

    text_property: str | None = None


class Rubric(Record, kw_only=True):
    """A property that a judge finds fulfilled or not.

    rubric_id: unique in its list. type: of the metrics that use it; without, all do.
    """

    rubric_id: str
    rubric_content: RubricContent
    description: str | None = None
    type: str | None = None


class InvocationEvent(Record, kw_only=True):
    """An event before the final response.

    author: the agent. content: text, calls and responses. usage_metadata: tokens of the model call.
    """

    author: str
    content: Content | None = None
    grounding_metadata: GroundingMetadata | None = None
    usage_metadata: GenerateContentResponseUsageMetadata | None = None
    model_version: str | None = None


class IntermediateData(Record, kw_only=True):
    """What happened before the final response: `invocation_events`, or the other three, which older files have.

    intermediate_responses: pairs of author and parts.
    """

    invocation_events: list[InvocationEvent] | None = None
    tool_uses: list[FunctionCall] | None = None
    tool_responses: list[FunctionResponse] | None = None
    intermediate_responses: list[tuple[str, list[Part]]] | None = None

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Author and part, in order."""
        for event in self.invocation_events or ():
            for part in (event.content.parts or ()) if event.content else ():
                yield event.author, part

    def calls(self) -> list[FunctionCall]:
        calls = [part.function_call for _, part in self.parts() if part.function_call is not None]
        return calls or list(self.tool_uses or ())

    def responses(self) -> list[FunctionResponse]:
        found = [part.function_response for _, part in self.parts() if part.function_response is not None]
        return found or list(self.tool_responses or ())

    def texts(self) -> list[tuple[str, str]]:
        """Author and text of each message before the final response."""
        found = [(author, part.text) for author, part in self.parts() if part.text and not part.thought]
        pairs = self.intermediate_responses or ()
        return found or [(author, part.text) for author, parts in pairs for part in parts if part.text]


class AgentDetails(Record, kw_only=True):
    """What an agent was given: its instructions, and the declarations of its tools."""

    name: str
    instructions: str = msgspec.field(default_factory=str)
    tool_declarations: list[Tool] = msgspec.field(default_factory=list[Tool])


class AppDetails(Record, kw_only=True):
    """agent_details: by the agent's name."""

    agent_details: dict[str, AgentDetails] = msgspec.field(default_factory=empty_map)


class Invocation(Record, kw_only=True):
    """A message of the user and what it led to, expected or actual.

    creation_timestamp: Unix seconds. duration, model_duration, tool_duration: seconds.
    """

    invocation_id: str = msgspec.field(default_factory=str)
    user_content: Content
    final_response: Content | None = None
    intermediate_data: IntermediateData | None = None
    creation_timestamp: float = 0.0
    duration: float | None = None
    model_duration: float | None = None
    tool_duration: float | None = None
    rubrics: list[Rubric] | None = None
    app_details: AppDetails | None = None

    def calls(self) -> list[FunctionCall]:
        return self.intermediate_data.calls() if self.intermediate_data else []

    def text(self) -> str | None:
        """The text of the final response without thoughts; None without a text."""
        return text_of(self.final_response)


def text_of(content: Content | None) -> str | None:
    parts = (content.parts or ()) if content is not None else ()
    return "\n".join(part.text for part in parts if part.text and not part.thought) or None


class SessionInput(Record, kw_only=True):
    """The session in which a case runs. session_id: a new one if it is not named. state: of the new session."""

    app_name: str = msgspec.field(default_factory=str)
    user_id: str = msgspec.field(default_factory=str)
    session_id: str | None = None
    state: JsonObject = msgspec.field(default_factory=empty_map)


class ConversationScenario(Record, kw_only=True):
    """What a simulated user says and wants. user_persona: the id of a persona, or its description and behaviors."""

    starting_prompt: str
    conversation_plan: str
    user_persona: Any = None


class EvalCase(Record, kw_only=True):
    """A conversation with the expected responses, or a scenario for a simulated user: exactly one of both.

    final_session_state: the expected state of the session at the end. creation_timestamp: Unix seconds.
    """

    eval_id: str
    conversation: list[Invocation] | None = None
    conversation_scenario: ConversationScenario | None = None
    session_input: SessionInput | None = None
    rubrics: list[Rubric] | None = None
    final_session_state: JsonObject | None = None
    creation_timestamp: float = 0.0

    def check(self) -> None:
        """Raises InvalidRequest."""
        if (self.conversation is None) == (self.conversation_scenario is None):
            raise InvalidRequest(f"Case {self.eval_id!r} needs either conversation or conversation_scenario")


class EvalSet(Record, kw_only=True, rename=None):
    """Cases that are run together. The names of this record are snake_case on the wire, too.

    creation_timestamp: Unix seconds.
    """

    eval_set_id: str
    name: str | None = None
    description: str | None = None
    eval_cases: list[EvalCase] = msgspec.field(default_factory=list[EvalCase])
    creation_timestamp: float = 0.0

    def case(self, eval_id: str) -> EvalCase | None:
        return next((case for case in self.eval_cases if case.eval_id == eval_id), None)


class EvalMetric(Record, kw_only=True):
    """A metric of a run. criterion: its options, `threshold` among them. custom_function_path: of custom metrics."""

    metric_name: str
    threshold: float | None = None
    criterion: JsonObject | None = None
    custom_function_path: str | None = None

    def options(self) -> JsonObject:
        return {"threshold": self.threshold, **(self.criterion or {})}


class RubricScore(Record, kw_only=True):
    """rationale: the judge's reason. score: 0 or 1 in an invocation, the mean in a case; None without a judgement."""

    rubric_id: str
    rationale: str | None = None
    score: float | None = None


class EvalMetricResultDetails(Record, kw_only=True):
    rubric_scores: list[RubricScore] | None = None
    token_usage_details: JsonObject | None = None
    duration_details: JsonObject | None = None


class EvalMetricResult(Record, kw_only=True, omit_defaults=False):
    """score: None when the metric could not be computed. threshold: the least score that passes."""

    metric_name: str
    threshold: float | None = None
    criterion: JsonObject | None = None
    score: float | None = None
    eval_status: EvalStatus
    details: EvalMetricResultDetails = msgspec.field(default_factory=EvalMetricResultDetails)


class EvalMetricResultPerInvocation(Record, kw_only=True, omit_defaults=False):
    actual_invocation: Invocation
    expected_invocation: Invocation | None = None
    eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])


class EvalCaseResult(Record, kw_only=True, omit_defaults=False):
    """The result of one run of a case.

    eval_set_file: the set's id, for older clients. session_details: the session at its end. error: why the case could
    not be run; ADK leaves it out.
    """

    eval_set_file: str = msgspec.field(default_factory=str)
    eval_set_id: str
    eval_id: str
    final_eval_status: EvalStatus
    eval_metric_results: list[Any] = msgspec.field(default_factory=list[Any])
    overall_eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])
    eval_metric_result_per_invocation: list[EvalMetricResultPerInvocation] = msgspec.field(
        default_factory=list[EvalMetricResultPerInvocation]
    )
    user_id: str
    session_id: str
    session_details: Session | None = None
    error: str | None = None


class EvalSetResult(Record, kw_only=True, omit_defaults=False):
    """The results of one run of a set. eval_set_result_id: `{app}_{set}_{creation_timestamp}`."""

    eval_set_result_id: str
    eval_set_result_name: str
    eval_set_id: str
    eval_case_results: list[EvalCaseResult] = msgspec.field(default_factory=list[EvalCaseResult])
    creation_timestamp: float = 0.0


class Interval(Record, kw_only=True, omit_defaults=False):
    min_value: float
    max_value: float
    open_at_min: bool = False
    open_at_max: bool = False


class MetricValueInfo(Record, kw_only=True, omit_defaults=False):
    interval: Interval


class MetricInfo(Record, kw_only=True, omit_defaults=False):
    """requires_threshold: whether the metric passes or fails; the others only inform."""

    metric_name: str
    description: str
    metric_value_info: MetricValueInfo
    requires_threshold: bool = True


def check_id(name: str, what: str) -> None:
    """Raises InvalidRequest unless it can be the name of a file: letters, digits and `_`."""
    if not _ID.fullmatch(name):
        raise InvalidRequest(f"The id of {what} consists of letters, digits and _, not {name[:100]!r}")
