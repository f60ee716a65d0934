"""Metrics that compare an agent's actual and expected behaviour, without a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from greenroom.errors import InvalidRequest, MissingExtra
from greenroom.evaluation.metrics.metric import EvaluationMetric, EvaluationResult, ScoredConversation, metric_info
from greenroom.evaluation.records import EvalMetric
from greenroom.records.content import FunctionCall

_MATCH_TYPES = ("EXACT", "IN_ORDER", "ANY_ORDER")


class ToolTrajectory(EvaluationMetric):
    """Compares the tool calls of each turn with the expected ones.

    match_type: how strictly.
        EXACT: the same calls in the same order.
        IN_ORDER: the expected calls in their order, maybe with others between them.
        ANY_ORDER: the expected calls in any order.
    ignore_args: whether only names are compared.

    Expected a, b; actual a, x, b: 0 by EXACT and 1 by the others. Actual b, a: 1 by ANY_ORDER only.
    """

    info = metric_info(
        "tool_trajectory_avg_score",
        "The share of turns whose tool calls are those that were expected.",
    )

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)

        match_type: Any = self.options.get("match_type", "EXACT")
        if match_type in (0, 1, 2):
            self._match_type = _MATCH_TYPES[match_type]
        else:
            self._match_type = str(match_type).upper()

        if self._match_type not in _MATCH_TYPES:
            raise InvalidRequest(f"match_type is one of {', '.join(_MATCH_TYPES)}, not {match_type!r}")

        self._ignores_args = bool(self.options.get("ignore_args", False))

    async def evaluate(self, conversation: ScoredConversation) -> EvaluationResult:
        turns = conversation.turns()
        for turn in turns:
            if turn.expected_invocation is not None:
                turn.score = float(self._matches(turn.actual_invocation.calls(), turn.expected_invocation.calls()))
        return self.result(turns)

    def _matches(self, actual: list[FunctionCall], expected: list[FunctionCall]) -> bool:
        actual_calls = [self._key(call) for call in actual]
        wanted = [self._key(call) for call in expected]

        if self._match_type == "EXACT":
            return actual_calls == wanted

        if self._match_type == "IN_ORDER":
            rest = iter(actual_calls)
            return all(key in rest for key in wanted)

        return Counter(wanted) <= Counter(actual_calls)

    def _key(self, call: FunctionCall) -> tuple[str | None, str]:
        return call.name, "" if self._ignores_args else json.dumps(call.args or {}, sort_keys=True)


class ResponseMatch(EvaluationMetric):
    """The F-measure of ROUGE-1 with stemming.

    Source: C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries" (2004), by
    `rouge-score`.
    """

    info = metric_info(
        "response_match_score", "How many words the final response shares with the expected one (ROUGE-1)."
    )

    def __init__(self, metric: EvalMetric) -> None:
        """Raises MissingExtra."""
        super().__init__(metric)
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError as error:
            raise MissingExtra("eval", "rouge-score") from error
        self._scorer: Any = RougeScorer(["rouge1"], use_stemmer=True, tokenizer=_Tokenizer())

    async def evaluate(self, conversation: ScoredConversation) -> EvaluationResult:
        turns = conversation.turns()
        for turn in turns:
            if turn.expected_invocation is not None:
                reference = turn.expected_invocation.text()
            else:
                reference = None
            if reference is not None:
                scores = self._scorer.score(reference, turn.actual_invocation.text() or "")
                turn.score = float(scores["rouge1"].fmeasure)

        return self.result(turns)


class _Tokenizer:
    """Runs of Unicode letters and digits, lower-cased; long ASCII words are stemmed. rouge-score's
    own tokenizer knows ASCII only.
    """

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stem: Callable[[str], str] = PorterStemmer().stem  # pyright: ignore[reportUnknownMemberType]

    def tokenize(self, text: str) -> list[str]:
        words = "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()
        return [self._stem(word) if len(word) > 3 and word.isascii() else word for word in words]
