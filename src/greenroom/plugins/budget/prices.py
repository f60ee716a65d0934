"""What tokens cost, by the name of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from greenroom.errors import AgentConfigError

_MILLION = Decimal(1_000_000)


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


def price_of(model: str, prices: Mapping[str, Price]) -> Price:
    """Raises AgentConfigError for a model that no pattern fits: what has no price can't be held to a budget."""
    for pattern, price in prices.items():
        if re.fullmatch(pattern, model):
            return price
    raise AgentConfigError(
        f"The model {model!r} has no price, and the budget is in money. "
        f"Known name patterns: {', '.join(prices) or 'none'}"
    )
