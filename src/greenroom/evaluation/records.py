"""Evaluation sets, their cases, and results; names and JSON are ADK's.

In files the names are snake_case, over HTTP camelCase; both are read in either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import IntEnum
from hashlib import sha256
from typing import Any

import msgspec

from greenroom.errors import CallerError, InvalidRequest
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata, GroundingMetadata
from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.feedback import Feedback
from greenroom.records.session import Session
from greenroom.records.tool_declaration import Tool

DEFAULT_USER = "test_user_id"
"""The user of evaluations and tests that name none. Source: ADK."""

RESPONSE_RUBRICS = "FINAL_RESPONSE_QUALITY"
"""The type of the rubrics of final responses."""

_ID = re.compile(r"[A-Za-z0-9_]{1,200}")


class EvalStatus(IntEnum):
    PASSED = 1
    FAILED = 2
    NOT_EVALUATED = 3
    INFORMATIONAL = 4


class RubricContent(Record, kw_only=True):
    """The content of a rubric."""

    text_property: str | None = None
    """The property that must hold, as a sentence."""


class Rubric(Record, kw_only=True):
    """A property that a judge finds fulfilled or not."""

    rubric_id: str
    """Unique within its list."""
    rubric_content: RubricContent
    """The property that must hold."""
    description: str | None = None
    """A note for people."""
    type: str | None = None
    """The type of the metrics that use the rubric; by default all use it."""


class InvocationEvent(Record, kw_only=True):
    """An event before the final response."""

    author: str
    """The agent that wrote the event."""
    content: Content | None = None
    """Text, calls and responses."""
    grounding_metadata: GroundingMetadata | None = None
    """The sources of the model's answer."""
    usage_metadata: GenerateContentResponseUsageMetadata | None = None
    """Tokens of the model call."""
    model_version: str | None = None
    """As the provider reported it."""


class IntermediateData(Record, kw_only=True):
    """Steps before the final response: `invocation_events`, or the other three, which older files have."""

    invocation_events: list[InvocationEvent] | None = None
    """In order."""
    tool_uses: list[FunctionCall] | None = None
    """The function calls."""
    tool_responses: list[FunctionResponse] | None = None
    """Their responses."""
    intermediate_responses: list[tuple[str, list[Part]]] | None = None
    """Pairs of author and parts."""

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
    """Instructions and tools of an agent."""

    name: str
    """The agent's name."""
    instructions: str = msgspec.field(default_factory=str)
    """The instructions for the agent's model."""
    tool_declarations: list[Tool] = msgspec.field(default_factory=list[Tool])
    """The tools that the agent's model was offered."""


class AppDetails(Record, kw_only=True):
    """Instructions and tools of an app's agents."""

    agent_details: dict[str, AgentDetails] = msgspec.field(default_factory=empty_map)
    """The details of each agent, by its name."""


class Invocation(Record, kw_only=True):
    """A message of the user and the agents' reaction, expected or actual."""

    invocation_id: str = msgspec.field(default_factory=str)
    """The run's id."""
    user_content: Content
    """The user's message."""
    final_response: Content | None = None
    """The answer; None if none is expected."""
    intermediate_data: IntermediateData | None = None
    """The steps before the answer."""
    creation_timestamp: float = 0.0
    """Unix seconds."""
    duration: float | None = None
    """Duration of the run, in seconds."""
    model_duration: float | None = None
    """Duration of the model calls, in seconds."""
    tool_duration: float | None = None
    """Duration of the tools, in seconds."""
    rubrics: list[Rubric] | None = None
    """Rubrics for this message only."""
    app_details: AppDetails | None = None
    """The instructions and tools of the agents."""

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
    """The session in which a case runs."""

    app_name: str = msgspec.field(default_factory=str)
    """The app's name."""
    user_id: str = msgspec.field(default_factory=str)
    """The user's id."""
    session_id: str | None = None
    """By default a new one."""
    state: JsonObject = msgspec.field(default_factory=empty_map)
    """The state that the new session begins with."""


class ConversationScenario(Record, kw_only=True):
    """First message and plan of a simulated user."""

    starting_prompt: str
    """The first message."""
    conversation_plan: str
    """The user's wishes, in words."""
    user_persona: Any = None
    """The id of a persona, or its description and behaviors."""


class RecordedResult(Record, kw_only=True):
    """A call's arguments and its result."""

    args: JsonObject = msgspec.field(default_factory=empty_map)
    """The arguments of the call."""
    response: JsonObject
    """The result of the call."""


class CaseSource(Record, kw_only=True):
    """The stored answer that a case was made from."""

    user_id: str
    """The session's user."""
    session_id: str
    """The session of the answer."""
    event_id: str
    """The event of the answer."""
    run_id: str
    """The run of the answer."""
    app_version: str | None = None
    """The version of the app's code in that run, where it is known."""
    feedback: list[Feedback] = msgspec.field(default_factory=list[Feedback])
    """The feedback on the answer when the case was made."""
    answer: Invocation
    """The message with the calls and the answer, as they were."""


class EvalCase(Record, kw_only=True):
    """A conversation with the expected responses, or a scenario for a simulated user: exactly one
    of both.
    """

    eval_id: str
    """Unique within its set."""
    conversation: list[Invocation] | None = None
    """Messages, with the expected reaction to each."""
    conversation_scenario: ConversationScenario | None = None
    """The scenario for a simulated user."""
    session_input: SessionInput | None = None
    """The session in which the case runs."""
    rubrics: list[Rubric] | None = None
    """Rubrics for all messages."""
    final_session_state: JsonObject | None = None
    """The expected state of the session at the end."""
    creation_timestamp: float = 0.0
    """Unix seconds."""
    given_turns: int | None = None
    """The number of messages at the beginning of `conversation` that aren't run: the session begins with them, as they
    are here.
    """
    tool_results: dict[str, list[RecordedResult]] | None = None
    """The results of calls by tool, in their order. Tools don't run then; a call without a result here gets an error.
    """
    source: CaseSource | None = None
    """The stored answer that the case was made from."""

    def check(self) -> None:
        """Raises InvalidRequest."""
        if (self.conversation is None) == (self.conversation_scenario is None):
            raise InvalidRequest(f"Case {self.eval_id!r} needs either conversation or conversation_scenario")
        if self.given_turns and not 0 < self.given_turns < len(self.conversation or ()):
            raise InvalidRequest(f"Case {self.eval_id!r}: given_turns leaves no message of the conversation to run")

    def digest(self) -> str:
        """A hash of all that the results of the case depend on."""
        case = msgspec.structs.replace(self, creation_timestamp=0.0, source=None)
        whole = case.model_dump(mode="json", exclude_none=True)  # with defaults, which may be left out in a file
        return sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()[:16]


class EvalSet(Record, kw_only=True, rename=None):
    """Cases that are run together. The fields of this record are snake_case on the wire as well."""

    eval_set_id: str
    """The set's id, which is also the file's name."""
    name: str | None = None
    """A name for people."""
    description: str | None = None
    """A description for people."""
    eval_cases: list[EvalCase] = msgspec.field(default_factory=list[EvalCase])
    """The cases."""
    creation_timestamp: float = 0.0
    """Unix seconds."""
    version: int | None = None
    """The number of changes of the set since its history began; None for a set that isn't stored with an app."""

    def case(self, eval_id: str) -> EvalCase | None:
        return next((case for case in self.eval_cases if case.eval_id == eval_id), None)

    def select(self, eval_ids: Collection[str]) -> EvalSet:
        """A copy with only these cases, in the set's order. Raises InvalidRequest for unknown ids."""
        unknown = [name for name in eval_ids if self.case(name) is None]
        if unknown:
            raise InvalidRequest(f"There are no cases {', '.join(unknown[:10])} in {self.eval_set_id!r}")
        return msgspec.structs.replace(
            self,
            eval_cases=[one for one in self.eval_cases if one.eval_id in eval_ids],
        )


class EvalMetric(Record, kw_only=True):
    """A metric of a run."""

    metric_name: str
    threshold: float | None = None
    criterion: JsonObject | None = None
    """Its options, `threshold` among them."""

    custom_function_path: str | None = None
    """Of custom metrics."""


class RubricScore(Record, kw_only=True):
    """The judgement of one rubric."""

    rubric_id: str
    """The rubric that was judged."""
    rationale: str | None = None
    """The judge's reason."""
    score: float | None = None
    """0 or 1 in an invocation, the mean in a case; None without a judgement."""


class EvalMetricResultDetails(Record, kw_only=True):
    """Details that some metrics give beyond their score."""

    rubric_scores: list[RubricScore] | None = None
    """The score of each rubric."""
    token_usage_details: JsonObject | None = None
    """Tokens by kind."""
    duration_details: JsonObject | None = None
    """Seconds by kind."""


class EvalMetricResult(Record, kw_only=True, omit_defaults=False):
    """Result of a metric."""

    metric_name: str
    """The metric's name."""
    threshold: float | None = None
    """The lowest score that passes."""
    criterion: JsonObject | None = None
    """The metric's options."""
    score: float | None = None
    """None when the metric could not be computed."""
    eval_status: EvalStatus
    """1 passed, 2 failed, 3 not evaluated, 4 only informs."""
    details: EvalMetricResultDetails = msgspec.field(default_factory=EvalMetricResultDetails)
    """Details beyond the score."""


class EvalMetricResultPerInvocation(Record, kw_only=True, omit_defaults=False):
    """Results of the metrics for one turn."""

    actual_invocation: Invocation
    """The turn as the agent ran it."""
    expected_invocation: Invocation | None = None
    """The expected turn; None in scenarios."""
    eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])
    """One for each metric."""


class EvalCaseResult(Record, kw_only=True, omit_defaults=False):
    """The result of one run of a case."""

    eval_set_file: str = msgspec.field(default_factory=str)
    """The set's id, for older clients."""
    eval_set_id: str
    """The id of the set."""
    eval_id: str
    """The id of the case."""
    final_eval_status: EvalStatus
    """1 passed, 2 failed, 3 not evaluated."""
    eval_metric_results: list[Any] = msgspec.field(default_factory=list[Any])
    """Empty in stored results."""
    overall_eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])
    """Results for the whole case."""
    eval_metric_result_per_invocation: list[EvalMetricResultPerInvocation] = msgspec.field(
        default_factory=list[EvalMetricResultPerInvocation]
    )
    """Results for each turn."""
    user_id: str
    """The session's user."""
    session_id: str
    """The session in which the case was run."""
    session_details: Session | None = None
    """The session at its end; in stored results only."""
    error: str | None = None
    """The reason why the case could not be run."""
    eval_case_digest: str | None = None
    """A hash of the case. Results of one id with different hashes are those of different cases."""
    is_offline: bool = False
    """True for a case with results of tools, which ran apart from all stores: its session isn't kept."""


class RunEvalResult(EvalCaseResult, kw_only=True, omit_defaults=False):
    """The result of a case as it is answered to the request that ran it."""

    app_name: str
    """The evaluated app."""
    eval_metric_results: list[EvalMetricResult] = msgspec.field(default_factory=list[EvalMetricResult])
    """Results for the whole case."""


class EvalSetResult(Record, kw_only=True, omit_defaults=False):
    """The results of one run of a set."""

    eval_set_result_id: str
    """`{app}_{set}_{creation_timestamp}`."""
    eval_set_result_name: str
    """The same id as the name of a file."""
    eval_set_id: str
    """The id of the set."""
    eval_case_results: list[EvalCaseResult] = msgspec.field(default_factory=list[EvalCaseResult])
    """One for each run of a case."""
    creation_timestamp: float = 0.0
    """Unix seconds."""
    eval_set_version: int | None = None
    """The version of the set; None for a set that isn't stored with an app."""


class Interval(Record, kw_only=True, omit_defaults=False):
    """The range of a number."""

    min_value: float
    """The smallest value."""
    max_value: float
    """The greatest value."""
    open_at_min: bool = False
    """Whether the smallest value itself is left out."""
    open_at_max: bool = False
    """Whether the greatest value itself is left out."""


class MetricValueInfo(Record, kw_only=True, omit_defaults=False):
    """The values of a metric."""

    interval: Interval
    """The range of the scores."""


class MetricInfo(Record, kw_only=True, omit_defaults=False):
    """An available metric."""

    metric_name: str
    """The metric's name."""
    description: str
    """A sentence on what the metric measures."""
    metric_value_info: MetricValueInfo
    """The range of the metric's scores."""
    requires_threshold: bool = True
    """Whether the metric passes or fails; the others only inform."""


def check_id(name: str, what: str) -> None:
    """Raises CallerError unless it can be the name of a file: letters, digits and `_`."""
    if not _ID.fullmatch(name):
        raise CallerError(f"The id of {what} consists of letters, digits and _, not {name[:100]!r}")
