"""Prices of models, and the cost of reported usage."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from greenroom.errors import ConfigurationError
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata

_MILLION = Decimal(1_000_000)


class Amount(NamedTuple):
    tokens: int = 0
    money: Decimal = Decimal(0)
    """In the currency of the price table."""

    def plus(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money)


class Price:
    """Prices per million tokens, in any currency."""

    __slots__ = ("cached_input", "input", "output")

    def __init__(
        self,
        input: Decimal | float | str,  # noqa: A002 - as price lists call it
        output: Decimal | float | str,
        cached_input: Decimal | float | str | None = None,
    ) -> None:
        """Sets the prices. `cached_input` is for prompt tokens from the provider's cache, and defaults to `input`."""
        self.input = Decimal(str(input))
        self.output = Decimal(str(output))
        self.cached_input = self.input if cached_input is None else Decimal(str(cached_input))

    def cost(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> Decimal:
        """Returns the cost. `cached_tokens` are included in the input tokens."""
        fresh = max(input_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * self.cached_input + output_tokens * self.output) / _MILLION

    def cost_of(self, usage: GenerateContentResponseUsageMetadata) -> Amount:
        """Tokens and cost of the usage that a model reported."""
        cached = usage.cached_content_token_count or 0
        money = self.cost(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=cached)
        return Amount(max(usage.total_token_count or 0, usage.input_tokens + usage.output_tokens), money)


FREE = Price(0, 0)


class PriceTable:
    """Prices by regular expressions for the whole name of a model; the first match counts."""

    def __init__(self, prices: Mapping[str, Price], *, currency: str = "USD") -> None:
        self.prices = prices
        self.currency = currency
        self._found: dict[str, Price | None] = {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PriceTable:
        """The file's prices, then the default ones if the currency is the same. Raises ConfigurationError.

        The file has `currency` and a table `models`: a price by name pattern, with `input`, `output` and perhaps
        `cached_input`.
        """
        try:
            own = _parse(Path(path).read_text("utf-8"))
        except (OSError, ValueError, ArithmeticError, TypeError, KeyError, AttributeError, re.error) as error:
            raise ConfigurationError(
                [f"the prices in {path} can't be read: {type(error).__name__}: {error}"]
            ) from error
        default = default_prices()
        if own.currency != default.currency:
            return own
        return cls({**own.prices, **{name: price for name, price in default.prices.items() if name not in own.prices}})

    def find(self, model: str) -> Price | None:
        """None when the price is unknown."""
        if model not in self._found:
            matching = (price for pattern, price in self.prices.items() if re.fullmatch(pattern, model))
            self._found[model] = next(matching, None)
        return self._found[model]


@cache
def default_prices() -> PriceTable:
    from importlib import resources

    return _parse((resources.files("greenroom.usage") / "prices.toml").read_text("utf-8"))


def _parse(text: str) -> PriceTable:
    import tomllib  # not needed where no cost is counted

    document: dict[str, Any] = tomllib.loads(text, parse_float=Decimal)
    prices: dict[str, Price] = {}
    for pattern, price in document.get("models", {}).items():
        re.compile(pattern)
        prices[pattern] = Price(price["input"], price["output"], price.get("cached_input"))
    return PriceTable(prices, currency=str(document.get("currency", "USD")))
