"""Ends runs before they cost more than is allowed: per run, user, app and API key, in tokens or money."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.budget_ledger import (
    Account,
    Amount,
    BudgetLedger,
    Ceiling,
    Price,
    Refusal,
    contents_tokens,
    price_of,
    request_tokens,
)
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.event import Event
from greenroom.records.identifiers import uuid4
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode

BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
"""Error code of the event that ends a run whose budget is exhausted."""

DEFAULT_OUTPUT_TOKENS = 4_096


@dataclass(frozen=True, kw_only=True)
class BudgetLimit:
    """A limit for each run, user, app or API key; for the latter three per day (UTC), or for all time.

    money: in the currency of the price table.
    """

    per: Literal["run", "user", "app", "key"]
    tokens: int | None = None
    money: Decimal | float | str | None = None
    window: Literal["day", "ever"] = "day"

    def __post_init__(self) -> None:
        if self.tokens is None and self.money is None:
            raise AgentConfigError(f"The budget per {self.per} limits nothing: give it tokens or money")


@dataclass(kw_only=True)
class _Call:
    """A model call in progress. estimate: of its prompt and of the output tokens given."""

    estimate: Callable[[int], Amount]
    price: Price
    accounts: set[Account]  # one account may have several limits
    hold_id: str = field(default_factory=uuid4)
    seen_tokens: int | None = None
    reported: Amount | None = None

    def add_reply(self, reply: LlmResponse) -> None:
        if reply.usage_metadata is not None:
            self.reported = self.price.cost_of(reply.usage_metadata)
        tokens = contents_tokens([reply.content]) if reply.content is not None else 0
        self.seen_tokens = (self.seen_tokens or 0) + tokens if reply.partial else tokens

    def spent(self) -> Amount:
        """As reported by the model, else estimated; nothing if the model never replied."""
        if self.reported is not None:
            return self.reported
        return Amount() if self.seen_tokens is None else self.estimate(self.seen_tokens)


_CallKey: TypeAlias = tuple[str | None, str | None, str]
"""Isolation scope, branch and agent name, which have one call at a time in a run."""


@dataclass
class _Run:
    calls: dict[_CallKey, _Call] = field(default_factory=dict[_CallKey, _Call])
    live_price: Price | None = None


class BudgetPlugin(BasePlugin):
    """Reserves an estimate of every model call before it is made, and settles it with what the model reports.

    Calls are refused as soon as what is spent, reserved and needed exceeds a limit, so that concurrent runs can't
    overspend together. A request without `max_output_tokens` gets `default_output_tokens`, so that its cost is bounded.
    A call that was replaced by another plugin's or callback's answer, or cut off, is settled at the same agent's next
    call, at the latest when the run ends.

    prices: price by a regular expression for the whole name of the model, the first match counts; needed for limits in
    money. key_of: the key of a call, by default the caller's API key; calls without a key have no limit per key.
    clock: Unix seconds. In a live conversation each connection and each turn is checked like a call, and the usage that
    the model reports is added as it arrives. Register this plugin before plugins that replace models' replies, because
    it would not see those.
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
        self.ledger = BudgetLedger(clock=clock)
        self._limits = [(limit, None if limit.money is None else Decimal(str(limit.money))) for limit in limits]
        self._counts_money = any(money is not None for _, money in self._limits)
        self._prices = prices or {}
        self._key_of = key_of or _api_key
        self._default_output_tokens = default_output_tokens
        self._estimate = estimate
        self._clock = clock
        self._runs: dict[str, _Run] = {}

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Raises AgentConfigError when money is limited and the model has no price."""
        ceilings = self._ceilings(callback_context)
        if not ceilings:
            return None
        invocation, config = callback_context._invocation_context, llm_request.config
        await self._settle(callback_context)
        if config.max_output_tokens is None:
            config.max_output_tokens = self._default_output_tokens
        price = price_of(llm_request.model or "", self._prices) if self._counts_money else Price(0, 0)
        prompt_tokens = self._estimate(llm_request)

        def amount(output_tokens: int) -> Amount:
            money = price.cost(input_tokens=prompt_tokens, output_tokens=output_tokens)
            return Amount(prompt_tokens + output_tokens, money)

        call = _Call(estimate=amount, price=price, accounts={ceiling.account for ceiling in ceilings})
        needed = amount(config.max_output_tokens * (config.candidate_count or 1))
        refusal = await self.ledger.reserve(call.hold_id, ceilings, needed)
        if refusal is not None:
            callback_context.actions.escalate = True  # a loop around this agent would call again and again …
            invocation.llm_calls.add()  # … and so would nested loops; this call counts for max_llm_calls
            return _refused(refusal, needed)
        run = self._runs.setdefault(callback_context.invocation_id, _Run())
        run.calls[_call_key(callback_context)] = call
        if _is_live(callback_context):
            run.live_price = price
        return None

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """Adds what a live model reports; agents that run as its tools settle their own calls."""
        run = self._runs.get(invocation_context.invocation_id)
        if run is None or run.live_price is None:
            return
        if event.usage_metadata is None or event.partial or event.isolation_scope is not None:
            return
        call = run.calls.pop((None, event.branch, event.author), None)
        hold_id = call.hold_id if call is not None else uuid4()
        accounts = {ceiling.account for ceiling in self._ceilings(CallbackContext(invocation_context))}
        await self.ledger.settle(hold_id, accounts, run.live_price.cost_of(event.usage_metadata))

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        run = self._runs.get(callback_context.invocation_id)
        call = run.calls.get(_call_key(callback_context)) if run is not None else None
        if call is not None and not _is_live(callback_context):
            call.add_reply(llm_response)
            if not llm_response.partial:
                await self._settle(callback_context)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        await self._settle(callback_context)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        run = self._runs.pop(invocation_context.invocation_id, _Run())
        for call in run.calls.values():
            await self.ledger.settle(call.hold_id, call.accounts, call.spent())

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        await self.after_run_callback(invocation_context=invocation_context)

    async def _settle(self, callback_context: CallbackContext) -> None:
        run = self._runs.get(callback_context.invocation_id)
        call = run.calls.pop(_call_key(callback_context), None) if run is not None else None
        if call is not None:
            await self.ledger.settle(call.hold_id, call.accounts, call.spent())

    def _ceilings(self, ctx: CallbackContext) -> list[Ceiling]:
        today = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        key, app_name = self._key_of(ctx), ctx.session.app_name
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


def _api_key(ctx: CallbackContext) -> str | None:
    return ctx.caller.key_id if ctx.caller is not None else None


def _is_live(ctx: CallbackContext) -> bool:
    invocation = ctx._invocation_context
    return invocation.run_config.streaming_mode is StreamingMode.BIDI and invocation.isolation_scope is None


def _call_key(ctx: CallbackContext) -> _CallKey:
    return ctx._invocation_context.isolation_scope, ctx._invocation_context.branch, ctx.agent_name


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
