"""Ends runs before they cost more than was allowed: per run, user, app and key, in tokens or money."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.limits import LlmCallCounter
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.budget.call import Call, counted
from greenroom.plugins.budget.ledger import Account, Amount, BudgetLedger, Ceiling, Refusal
from greenroom.plugins.budget.prices import Price, price_of
from greenroom.plugins.budget.token_estimate import request_tokens
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.event import Event
from greenroom.records.identifiers import uuid4
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode

BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
"""Error code of the event that ends a run whose budget is used up."""

DEFAULT_OUTPUT_TOKENS = 4_096


@dataclass(frozen=True, kw_only=True)
class BudgetLimit:
    """At most so much for each run, user, app or key; for the latter three on each day (UTC), or ever.

    money: in the currency of the price table.
    """

    per: Literal["run", "user", "app", "key"]
    tokens: int | None = None
    money: Decimal | float | str | None = None
    window: Literal["day", "ever"] = "day"

    def __post_init__(self) -> None:
        if self.tokens is None and self.money is None:
            raise AgentConfigError(f"The budget per {self.per} limits nothing: give it tokens or money")


class BudgetPlugin(BasePlugin):
    """Holds an estimate of every model call before it is made, and settles it with what the model reports.

    Calls are refused as soon as what is spent, held and needed is over a limit, so runs side by side can't overspend
    together. A request without `max_output_tokens` is given `default_output_tokens`, so that its cost is bounded.

    prices: from a pattern of model names (a regular expression for the whole name; the first that fits) to a price;
    needed for limits in money. key_of: the key on whose account a call is; calls without one are free of those limits.
    clock: Unix seconds. Of a live conversation each connection and each turn is let in like a call, and what the model
    reports is written down as it comes. Register it before plugins that replace models' replies, which it would not get
    to see.
    """

    def __init__(
        self,
        limits: Sequence[BudgetLimit],
        *,
        prices: Mapping[str, Price] | None = None,
        key_of: Callable[[CallbackContext], str | None] | None = None,
        default_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
        estimate: Callable[[LlmRequest], int] = request_tokens,
        clock: Callable[[], float] = time.time,
        name: str = "budget",
    ) -> None:
        super().__init__(name)
        if key_of is None and any(limit.per == "key" for limit in limits):
            raise AgentConfigError("A budget per key needs key_of, which says whose key a call is made with")
        self.ledger = BudgetLedger(clock=clock)
        self._limits = [(limit, None if limit.money is None else Decimal(str(limit.money))) for limit in limits]
        self._counts_money = any(money is not None for _, money in self._limits)
        self._prices = prices or {}
        self._key_of = key_of
        self._default_output_tokens = default_output_tokens
        self._estimate = estimate
        self._clock = clock
        self._calls: weakref.WeakKeyDictionary[CallbackContext, Call] = weakref.WeakKeyDictionary()
        self._live_prices: weakref.WeakKeyDictionary[LlmCallCounter, Price] = weakref.WeakKeyDictionary()
        self._dropped: deque[Call] = deque()
        self._settling: set[asyncio.Task[None]] = set()

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Raises AgentConfigError when money is limited and the model has no price."""
        ceilings = self._ceilings(callback_context)
        if not ceilings:
            return None
        config = llm_request.config
        if config.max_output_tokens is None:
            config.max_output_tokens = self._default_output_tokens
        price = price_of(llm_request.model or "", self._prices) if self._counts_money else Price(0, 0)
        call = Call(price, self._estimate(llm_request), [ceiling.account for ceiling in ceilings])
        output_tokens = config.max_output_tokens * (config.candidate_count or 1)
        needed = call.amount(output_tokens)
        await self._settle_dropped()
        refusal = await self.ledger.reserve(call.hold_id, ceilings, needed)
        if refusal is not None:
            callback_context.actions.escalate = True  # a loop around this agent would ask for ever …
            callback_context._invocation.llm_calls.add()  # … and so would a loop around loops
            return _refused(refusal, needed)
        self._calls[callback_context] = call
        self._watch(callback_context, call)
        invocation = callback_context._invocation
        if invocation.run_config.streaming_mode is StreamingMode.BIDI and invocation.isolation_scope is None:
            self._live_prices[invocation.llm_calls] = price
        return None

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """A live connection has no end at which to settle; what runs as another agent's tool in it is no part of it."""
        usage = event.usage_metadata
        if usage is None or event.partial or event.isolation_scope is not None:
            return
        price = self._live_prices.get(invocation_context.llm_calls)
        if price is not None:
            accounts = {ceiling.account for ceiling in self._ceilings(CallbackContext(invocation_context))}
            await self.ledger.settle(uuid4(), accounts, counted(usage, price))

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        call = self._calls.get(callback_context)
        if call is None:
            return
        call.saw(llm_response)
        if not llm_response.partial:
            await self._settle(callback_context, call)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        call = self._calls.get(callback_context)
        if call is not None:
            await self._settle(callback_context, call)

    async def close(self) -> None:
        await self._settle_dropped()

    async def _settle(self, callback_context: CallbackContext, call: Call) -> None:
        del self._calls[callback_context]
        call.stop_watching()
        await self.ledger.settle(call.hold_id, call.accounts, call.spent())

    def _watch(self, callback_context: CallbackContext, call: Call) -> None:
        """Nobody tells a plugin that someone else answered in place of the model, or that the run was cut off. But the
        context of the call is gone then, or the task that it ran in is over."""
        loop = asyncio.get_running_loop()

        def drop(_: object = None) -> None:
            call.stop_watching()
            self._dropped.append(call)
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._settle_soon)

        finalizer = weakref.finalize(callback_context, drop)
        finalizer.atexit = False
        call.watchers.append(finalizer.detach)
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(drop)
            call.watchers.append(lambda: task.remove_done_callback(drop))

    def _settle_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._settle_dropped())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_dropped(self) -> None:
        while self._dropped:
            call = self._dropped.popleft()
            await self.ledger.settle(call.hold_id, call.accounts, call.spent())

    def _ceilings(self, ctx: CallbackContext) -> list[Ceiling]:
        today = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        key = self._key_of(ctx) if self._key_of is not None else None
        app_name = ctx.session.app_name
        owners: dict[str, tuple[str, ...] | None] = {
            "run": (ctx.invocation_id,),
            "user": (app_name, ctx.user_id),
            "app": (app_name,),
            "key": None if key is None else (key,),
        }
        ceilings: list[Ceiling] = []
        for limit, money in self._limits:
            owner = owners[limit.per]
            if owner is not None:
                day = today if limit.window == "day" and limit.per != "run" else ""
                ceilings.append(Ceiling(Account(limit.per, owner, day), limit.tokens, money))
        return ceilings


def _refused(refusal: Refusal, needed: Amount) -> LlmResponse:
    ceiling, spent, held = refusal
    account = ceiling.account
    whose = f"{account.per} {account.owner[-1]!r}" + (f" on {account.day} (UTC)" if account.day else "")
    used: list[str] = []
    for unit, limit, amounts in (
        ("tokens", ceiling.tokens, (spent.tokens, held.tokens, needed.tokens)),
        ("of money", ceiling.money, (spent.money, held.money, needed.money)),
    ):
        if limit is not None and sum(amounts) > limit:
            used.append(
                f"{amounts[0]} of {limit} {unit} are spent, {amounts[1]} are held for other calls, "
                f"and this one may take {amounts[2]}"
            )
    return LlmResponse(
        error_code=BUDGET_EXCEEDED,
        error_message=f"The budget of {whose} does not allow another model call: {'; '.join(used)}.",
        custom_metadata={"budget": {"per": account.per, "owner": account.owner[-1], "day": account.day or None}},
    )
