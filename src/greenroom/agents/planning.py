"""Planners: instructions to think before acting, and the treatment of thoughts in replies."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import MutableSequence, Sequence

import msgspec

from greenroom.invocation.user_context import CallbackContext, ReadonlyContext
from greenroom.records.content import Content, Part
from greenroom.records.genai_types import own
from greenroom.records.generation import ThinkingConfig
from greenroom.records.model_exchange import LlmRequest

PLANNING_TAG = "/*PLANNING*/"
REPLANNING_TAG = "/*REPLANNING*/"
REASONING_TAG = "/*REASONING*/"
ACTION_TAG = "/*ACTION*/"
FINAL_ANSWER_TAG = "/*FINAL_ANSWER*/"

_THOUGHT_TAGS = (PLANNING_TAG, REPLANNING_TAG, REASONING_TAG, ACTION_TAG)
_ANY_TAG = re.compile("|".join(re.escape(tag) for tag in (*_THOUGHT_TAGS, FINAL_ANSWER_TAG)))


class BasePlanner(ABC):
    @abstractmethod
    def build_planning_instruction(
        self,
        readonly_context: ReadonlyContext,
        llm_request: LlmRequest,
    ) -> str | None:
        """Text to add to the system instruction of this request, if any."""

    @abstractmethod
    def process_planning_response(
        self, callback_context: CallbackContext, response_parts: Sequence[Part]
    ) -> list[Part] | None:
        """The parts to use instead of a whole reply's; None leaves them as they are.

        The given parts are not changed.
        """


class BuiltInPlanner(BasePlanner):
    """Leaves the planning to the model's own thinking.

    thinking_config: counts before the agent's own.
    """

    def __init__(self, *, thinking_config: ThinkingConfig) -> None:
        self.thinking_config: ThinkingConfig = own(thinking_config)

    def apply_thinking_config(self, llm_request: LlmRequest) -> None:
        llm_request.config.thinking_config = self.thinking_config

    def build_planning_instruction(
        self,
        readonly_context: ReadonlyContext,
        llm_request: LlmRequest,
    ) -> str | None:
        return None

    def process_planning_response(
        self, callback_context: CallbackContext, response_parts: Sequence[Part]
    ) -> list[Part] | None:
        return None


class PlanReActPlanner(BasePlanner):
    """Makes any model write its plan, its reasoning and its answer under tags; all but the answer
    become thoughts.

    A reply ends for us with its first group of calls: the text after it was written without their results.
    """

    def build_planning_instruction(
        self,
        readonly_context: ReadonlyContext,
        llm_request: LlmRequest,
    ) -> str:
        return _INSTRUCTION

    def process_planning_response(
        self, callback_context: CallbackContext, response_parts: Sequence[Part]
    ) -> list[Part] | None:
        if not response_parts:
            return None

        kept_parts: list[Part] = []
        has_calls = False
        for part in response_parts:
            if part.function_call is not None:
                if part.function_call.name:
                    kept_parts.append(part)
                    has_calls = True
            elif has_calls:
                break
            else:
                kept_parts += _without_tags(part)

        return kept_parts


def remove_thought_marks(contents: MutableSequence[Content]) -> None:
    """Shows a model its earlier thoughts as the plain text they were. Contents of the log are
    replaced, not changed.
    """
    for at, content in enumerate(contents):
        if any(part.thought for part in content.parts or ()):
            parts = [msgspec.structs.replace(part, thought=None) for part in content.parts or ()]
            contents[at] = Content(role=content.role, parts=parts)


def _without_tags(part: Part) -> list[Part]:
    text = part.text
    if not text or part.thought:
        return [part]

    if FINAL_ANSWER_TAG in text:
        thought, _, answer = text.rpartition(FINAL_ANSWER_TAG)
        return [*_with_text(part, thought, thought=True), *_with_text(part, answer, thought=None)]

    if text.lstrip().startswith(_THOUGHT_TAGS):
        return _with_text(part, text, thought=True)

    return [part]


def _with_text(part: Part, text: str, *, thought: bool | None) -> list[Part]:
    text = _ANY_TAG.sub("", text)
    if text.strip():
        return [msgspec.structs.replace(part, text=text, thought=thought)]
    return []


_INSTRUCTION = f"""\
Work on the user's request in this order: first a plan, then tool calls with your reasoning between them, last one
final answer. Put each section under its tag:

{PLANNING_TAG} The plan, before anything else: a short numbered list of steps that together answer the whole request,
each of them possible with the tools you have.
{ACTION_TAG} The tool calls that carry out the next step.
{REASONING_TAG} After results have come: what they tell you, how far the plan is, and what to do next.
{REPLANNING_TAG} When the results show that the plan can't work: a new plan that starts from what you know by now.
{FINAL_ANSWER_TAG} The answer for the user, once, at the end.

Rules:
- Call only tools that are declared, with arguments that come from the conversation or from earlier results; never make
  up a name, a value or a result.
- Do not write what you expect a tool to return. Stop after your calls and wait for the real results.
- Repeat no call whose result you already have.
- If something that only the user can know is missing, ask for it in the final answer.
- The final answer stands by itself: it keeps to the form the user asked for, and says so when a part of the request
  could not be done.
"""
