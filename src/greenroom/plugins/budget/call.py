"""What a call of a model costs: at most, and when it is over."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.plugins.budget.ledger import Account, Amount
from greenroom.plugins.budget.prices import Price
from greenroom.plugins.budget.token_estimate import contents_tokens
from greenroom.records.identifiers import uuid4
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.usage import GenerateContentResponseUsageMetadata


class Call:
    """One call of a model: what was held for it, and what was seen of its reply."""

    def __init__(self, price: Price, prompt_tokens: int, accounts: list[Account]) -> None:
        self.hold_id = uuid4()
        self.accounts = set(accounts)  # one account may stand under several limits
        self.watchers: list[Callable[[], object]] = []
        self._price = price
        self._prompt_tokens = prompt_tokens
        self._usage: GenerateContentResponseUsageMetadata | None = None
        self._seen_tokens: int | None = None

    def stop_watching(self) -> None:
        watchers, self.watchers = self.watchers, []
        for stop in watchers:
            stop()

    def amount(self, output_tokens: int) -> Amount:
        money = self._price.cost(input_tokens=self._prompt_tokens, output_tokens=output_tokens)
        return Amount(self._prompt_tokens + output_tokens, money)

    def saw(self, reply: LlmResponse) -> None:
        self._usage = reply.usage_metadata or self._usage
        tokens = contents_tokens([reply.content]) if reply.content is not None else 0
        self._seen_tokens = (self._seen_tokens or 0) + tokens if reply.partial else tokens

    def spent(self) -> Amount:
        """By the model's own count; by estimate where it gave none; nothing if it never said a word."""
        usage = self._usage
        if usage is None:
            return Amount() if self._seen_tokens is None else self.amount(self._seen_tokens)
        return counted(usage, self._price)


def counted(usage: GenerateContentResponseUsageMetadata, price: Price) -> Amount:
    counted = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    cached = usage.cached_content_token_count or 0
    money = price.cost(input_tokens=counted, output_tokens=output, cached_tokens=cached)
    return Amount(max(usage.total_token_count or 0, counted + output), money)
