"""Evaluation sets, their cases, and results; names and JSON are ADK's.

In files the names are snake_case, over HTTP camelCase; both are read in either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import Any

import msgspec

from greenroom.errors import CallerError, InvalidRequest
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata, GroundingMetadata
from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.session import Session
from greenroom.records.tool_declaration import Tool

DEFAULT_USER = "test_user_id"
"""The user of evaluations and tests that name none. Source: ADK."""

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

    rubric_id: unique in its list. rubric_content: what must hold. description: a note for people. type: of the metrics
    that use it; without, all do.
    """

    rubric_id: str
    rubric_content: RubricContent
    description: str | None = None
    type: str | None = None


class InvocationEvent(Record, kw_only=True):
    """An event before the final response.

    author: the agent. content: text, calls and responses. grounding_metadata: the sources of the model's answer.
    usage_metadata: tokens of the model call. model_version: as the provider reported it.
    """

    author: str
    content: Content | None = None
    grounding_metadata: GroundingMetadata | None = None
    usage_metadata: GenerateContentResponseUsageMetadata | None = None
    model_version: str | None = None


class IntermediateData(Record, kw_only=True):
    """Steps before the final response: `invocation_events`, or the other three, which older files have.

    invocation_events: in order. tool_uses: the function calls. tool_responses: their responses. intermediate_responses:
    pairs of author and parts.
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
    """Instructions and tools of an agent.

    name: the agent's name. instructions: for its model. tool_declarations: the tools that its model was offered.
    """

    name: str
    instructions: str = msgspec.field(default_factory=str)
    tool_declarations: list[Tool] = msgspec.field(default_factory=list[Tool])


class AppDetails(Record, kw_only=True):
    """Instructions and tools of an app's agents.

    agent_details: by the agent's name.
    """

    agent_details: dict[str, AgentDetails] = msgspec.field(default_factory=empty_map)


class Invocation(Record, kw_only=True):
    """A message of the user and what it led to, expected or actual.

    invocation_id: of the run. user_content: the message. final_response: the answer; None: none is expected.
    intermediate_data: what happened before it. creation_timestamp: Unix seconds. duration: seconds of the run.
    model_duration: seconds of model calls. tool_duration: seconds of tools. rubrics: of this message alone.
    app_details: what the agents were given.
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

    @property
    def steps(self) -> IntermediateData:
        """The steps before the final response; empty if none were recorded."""
        return self.intermediate_data or IntermediateData()

    def calls(self) -> list[FunctionCall]:
        return self.steps.calls()

    def text(self) -> str | None:
        """The text of the final response without thoughts; None without a text."""
        return text_of(self.final_response)


def text_of(content: Content | None) -> str | None:
    parts = (content.parts or ()) if content is not None else ()
    return "\n".join(part.text for part in parts if part.text and not part.thought) or None


class SessionInput(Record, kw_only=True):
    """The session in which a case runs.

    app_name: the app's name. user_id: the user's id. session_id: a new one if it is not named. state: of the new
    session.
    """

    app_name: str = msgspec.field(default_factory=str)
    user_id: str = msgspec.field(default_factory=str)
    session_id: str | None = None
    state: JsonObject = msgspec.field(default_factory=empty_map)


class ConversationScenario(Record, kw_only=True):
    """First message and plan of a simulated user.

    starting_prompt: the first message. conversation_plan: what the user wants, in words. user_persona: the id of a
    persona, or its description and behaviors.
    """

    starting_prompt: str
    conversation_plan: str
    user_persona: Any = None


class EvalCase(Record, kw_only=True):
    """A conversation with the expected responses, or a scenario for a simulated user: exactly one of both.

    eval_id: unique in its set. conversation: messages, and what is expected of each. conversation_scenario: for a
    simulated user. session_input: the session in which the case runs. rubrics: of all messages. final_session_state:
    the expected state of the session at the end. creation_timestamp: Unix seconds.
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

    eval_set_id: names the file. name: for people. description: for people. eval_cases: the cases. creation_timestamp:
    Unix seconds.
    """

    eval_set_id: str
    name: str | None = None
    description: str | None = None
    eval_cases: list[EvalCase] = msgspec.field(default_factory=list[EvalCase])
    creation_timestamp: float = 0.0

    def case(self, eval_id: str) -> EvalCase | None:
        return next((case for case in self.eval_cases if case.eval_id == eval_id), None)

    def select(self, eval_ids: Collection[str]) -> EvalSet:
        """A copy with only these cases, in the set's order. Raises InvalidRequest for unknown ids."""
        unknown = [name for name in eval_ids if self.case(name) is None]
        if unknown:
            raise InvalidRequest(f"There are no cases {', '.join(unknown[:10])} in {self.eval_set_id!r}")
        return msgspec.structs.replace(self, eval_cases=[one for one in self.eval_cases if one.eval_id in eval_ids])


class EvalMetric(Record, kw_only=True):
    """A metric of a run. criterion: its options, `threshold` among them. custom_function_path: of custom metrics."""

    metric_name: str
    threshold: float | None = None
    criterion: JsonObject | None = None
    custom_function_path: str | None = None


class RubricScore(Record, kw_only=True):
    """The judgement of one rubric.

    rubric_id: of the rubric. rationale: the judge's reason. score: 0 or 1 in an invocation, the mean in a case; None
    without a judgement.
    """

    rubric_id: str
    rationale: str | None = None
    score: float | None = None


class EvalMetricResultDetails(Record, kw_only=True):
    """Details that some metrics give beyond their score.

    rubric_scores: of each rubric. token_usage_details: tokens by kind. duration_details: seconds by kind.
    """

    rubric_scores: list[RubricScore] | None = None
    token_usage_details: JsonObject | None = None
    duration_details: JsonObject | None = None


class EvalMetricResult(Record, kw_only=True, omit_defaults=False):
    """Result of a metric.

    metric_name: the metric. threshold: the least score that passes. criterion: the metric's options. score: None when
    the metric could not be computed. eval_status: 1 passed, 2 failed, 3 not evaluated, 4 only informs. details: what
    the metric says beyond its score.
    """

    metric_name: str
    threshold: float | None = None
    criterion: JsonObject | None = None
    score: float | None = None
    eval_status: EvalStatus
    details: EvalMetricResultDetails = msgspec.field(default_factory=EvalMetricResultDetails)


class EvalMetricResultPerInvocation(Record, kw_only=True, omit_defaults=False):
    """Results of the metrics for one turn.

    actual_invocation: what the agent did. expected_invocation: what was expected; None in scenarios.
    eval_metric_results: one for each metric.
    """

    actual_invocation: Invocation
    expected_invocation: Invocation | None = None
    eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])


class EvalCaseResult(Record, kw_only=True, omit_defaults=False):
    """The result of one run of a case.

    eval_set_file: the set's id, for older clients. eval_set_id: the set. eval_id: the case. final_eval_status: 1
    passed, 2 failed, 3 not evaluated. eval_metric_results: empty in stored results. overall_eval_metric_results: of
    the whole case. eval_metric_result_per_invocation: of each turn. user_id: of the session. session_id: the session in
    which the case was run. session_details: that session at its end; in stored results only. error: why the case could
    not be run.
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


class RunEvalResult(EvalCaseResult, kw_only=True, omit_defaults=False):
    """The result of a case as it is answered to the request that ran it.

    app_name: the evaluated app. eval_metric_results: of the whole case.
    """

    app_name: str
    eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])


class EvalSetResult(Record, kw_only=True, omit_defaults=False):
    """The results of one run of a set.

    eval_set_result_id: `{app}_{set}_{creation_timestamp}`. eval_set_result_name: the same, as the name of a file.
    eval_set_id: the set. eval_case_results: one for each run of a case. creation_timestamp: Unix seconds.
    """

    eval_set_result_id: str
    eval_set_result_name: str
    eval_set_id: str
    eval_case_results: list[EvalCaseResult] = msgspec.field(default_factory=list[EvalCaseResult])
    creation_timestamp: float = 0.0


class Interval(Record, kw_only=True, omit_defaults=False):
    """min_value: the least value. max_value: the greatest value. open_at_min: whether the least value itself is left
    out. open_at_max: whether the greatest value itself is left out.
    """

    min_value: float
    max_value: float
    open_at_min: bool = False
    open_at_max: bool = False


class MetricValueInfo(Record, kw_only=True, omit_defaults=False):
    """interval: of the scores."""

    interval: Interval


class MetricInfo(Record, kw_only=True, omit_defaults=False):
    """A metric that can be asked for.

    metric_name: its name. description: what it measures. metric_value_info: the range of its scores.
    requires_threshold: whether the metric passes or fails; the others only inform.
    """

    metric_name: str
    description: str
    metric_value_info: MetricValueInfo
    requires_threshold: bool = True


def check_id(name: str, what: str) -> None:
    """Raises CallerError unless it can be the name of a file: letters, digits and `_`."""
    if not _ID.fullmatch(name):
        raise CallerError(f"The id of {what} consists of letters, digits and _, not {name[:100]!r}")
