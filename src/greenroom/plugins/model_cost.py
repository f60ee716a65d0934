"""What calls of models cost: estimated token counts, and prices by the name of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from greenroom.errors import AgentConfigError
from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.usage import GenerateContentResponseUsageMetadata

_MILLION = Decimal(1_000_000)
_BYTES_PER_TOKEN = 3
"""English has about four, JSON and other alphabets about three, so estimates are rather too high than too low."""
_FILE_TOKENS = 1_500
_CONTENT_TOKENS = 4


class Amount(NamedTuple):
    """money: in the currency of the price table."""

    tokens: int = 0
    money: Decimal = Decimal(0)

    def plus(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money)


class Price:
    """Per million tokens, in any one currency. cached_input: of prompt tokens that the provider had in its cache."""

    __slots__ = ("cached_input", "input", "output")

    def __init__(
        self,
        input: Decimal | float | str,  # noqa: A002 - as price lists call it
        output: Decimal | float | str,
        cached_input: Decimal | float | str | None = None,
    ) -> None:
        self.input = Decimal(str(input))
        self.output = Decimal(str(output))
        self.cached_input = self.input if cached_input is None else Decimal(str(cached_input))

    def cost(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> Decimal:
        """cached_tokens: how many of the input tokens were cached."""
        fresh = max(input_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * self.cached_input + output_tokens * self.output) / _MILLION

    def cost_of(self, usage: GenerateContentResponseUsageMetadata) -> Amount:
        """What a model reported."""
        prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
        output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        cached = usage.cached_content_token_count or 0
        money = self.cost(input_tokens=prompt, output_tokens=output, cached_tokens=cached)
        return Amount(max(usage.total_token_count or 0, prompt + output), money)


def price_of(model: str, prices: Mapping[str, Price]) -> Price:
    """Raises AgentConfigError when no pattern matches the model's name: its calls can't be limited in money."""
    for pattern, price in prices.items():
        if re.fullmatch(pattern, model):
            return price
    raise AgentConfigError(
        f"The model {model!r} has no price, and the budget is in money. "
        f"Known name patterns: {', '.join(prices) or 'none'}"
    )


def request_tokens(request: LlmRequest) -> int:
    """Estimates the prompt: contents, system instruction and tool declarations."""
    total = _text_tokens(request.config.system_text()) + contents_tokens(request.contents)
    for declaration in request.function_declarations():
        total += _text_tokens(wire.encode(declaration))
    if request.config.response_schema is not None:
        total += _text_tokens(repr(request.config.response_schema))
    return total


def contents_tokens(contents: Iterable[Content]) -> int:
    return sum(_CONTENT_TOKENS + sum(_part_tokens(part) for part in content.parts or ()) for content in contents)


def _text_tokens(text: str | bytes) -> int:
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
    return -(-size // _BYTES_PER_TOKEN)


def _part_tokens(part: Part) -> int:
    if part.text is not None:
        return _text_tokens(part.text)
    if part.inline_data is not None or part.file_data is not None:
        return _FILE_TOKENS
    return _text_tokens(wire.encode(part))
