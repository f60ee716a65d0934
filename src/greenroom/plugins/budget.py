"""Ends runs before they cost more than is allowed: per run, user, app and API key, in tokens or money."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from greenroom.errors import AgentConfigError, GreenroomError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records import wire
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.budget import Budget
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode
from greenroom.usage.budgets import StoredBudgets
from greenroom.usage.prices import FREE, Amount, Price, PriceTable
from greenroom.usage.store import Account, Ceiling, Refusal, Reservation, UsageStore, day_of

_log = logging.getLogger("greenroom.budgets")

BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
"""Error code of the event that ends a run whose budget is exhausted."""

BUDGET_WARNINGS = "budgetWarnings"
"""Key of an event's custom metadata, with a list of warnings of budgets that this model call has nearly used up."""

DEFAULT_OUTPUT_TOKENS = 4_096

_MAX_WARNED = 10_000

_BYTES_PER_TOKEN = 3
"""English has about four, JSON and other alphabets about three: estimates are rather too high."""
_FILE_TOKENS = 1_500
_CONTENT_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class BudgetLimit:
    """A limit for each run, user, app or API key; for the latter three per day (UTC), or for all
    time.
    """

    per: Literal["run", "user", "app", "key"]
    tokens: int | None = None
    money: Decimal | float | str | None = None
    """In the currency of the price table."""

    window: Literal["day", "ever"] = "day"

    warn_at: float | None = None
    """The share of the limit at which a warning is given, once in the window: 0.8 is 80 %. Not for runs."""

    def __post_init__(self) -> None:
        if self.tokens is None and self.money is None:
            raise AgentConfigError(f"The budget per {self.per} limits nothing: give it tokens or money")
        if self.warn_at is not None and not 0 < self.warn_at <= 1:
            raise AgentConfigError(f"warn_at must be above 0 and at most 1, not {self.warn_at}")
        if self.warn_at is not None and self.per == "run":
            raise AgentConfigError("A budget per run has no window in which to warn once: leave out warn_at")

    @property
    def money_limit(self) -> Decimal | None:
        return None if self.money is None else Decimal(str(self.money))


@dataclass(kw_only=True)
class _BudgetedCall:
    """A model call in progress."""

    estimate: Callable[[int], Amount]
    """Of its prompt and of the output tokens given."""

    price: Price | None
    """None when it is unknown."""

    hold: Reservation
    model: str
    """As its reply names it."""

    soft_limits: Sequence[tuple[Ceiling, float]] = ()
    """Ceilings of which to warn, and the shares at which."""

    seen_tokens: int | None = None
    reported: GenerateContentResponseUsageMetadata | None = None

    def add_reply(self, reply: LlmResponse) -> None:
        self.model = reply.model_version or self.model
        self.reported = reply.usage_metadata or self.reported

        if reply.content is not None:
            tokens = contents_tokens([reply.content])
        else:
            tokens = 0

        if reply.partial:
            self.seen_tokens = (self.seen_tokens or 0) + tokens
        else:
            self.seen_tokens = tokens

    def spent(self) -> GenerateContentResponseUsageMetadata | Amount | None:
        """The usage as reported by the model, else estimated; None if the model never replied."""
        if self.reported is not None or self.seen_tokens is None:
            return self.reported
        return self.estimate(self.seen_tokens)


_CallKey: TypeAlias = tuple[str | None, str | None, str]
"""Isolation scope, branch and agent name, which have one call at a time in a run."""


@dataclass
class _BudgetedRun:
    store: UsageStore
    calls: dict[_CallKey, _BudgetedCall] = field(default_factory=dict[_CallKey, _BudgetedCall])
    live: _BudgetedCall | None = None


class BudgetPlugin(BasePlugin):
    """Reserves an estimate of every model call before it is made, and settles it with what the
    model reports.

    Calls are refused as soon as the sum of spent, reserved and needed exceeds a limit, so that concurrent runs can't
    overspend together. Usage is kept with the sessions (`BaseSessionService.usage`). A request without
    `max_output_tokens` gets `default_output_tokens`, so that its cost is bounded. When a call is about to be refused,
    the provider counts the prompt if it can. A call that was replaced by another plugin's or callback's answer, or cut
    off, is settled at the same agent's next call, at the latest when the run ends.

    prices: price by a regular expression for the whole name of the model, the first match counts;
        after them the server's price table.
    key_of: the key of a call, by default the caller's API key; calls without a key have no limit
        per key.
    clock: Unix seconds. In a live conversation each connection and each turn is checked like a
        call, and the usage that the model reports is added as it arrives. Register this plugin
        before plugins that replace models' replies, because it would not see those.
    """

    def __init__(
        self,
        limits: Sequence[BudgetLimit],
        *,
        prices: Mapping[str, Price] | None = None,
        key_of: Callable[[CallbackContext], str | None] | None = None,
        default_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
        estimate: Callable[[LlmRequest], int] | None = None,
        clock: Callable[[], float] = time.time,
        name: str = "budget",
    ) -> None:
        super().__init__(name)
        self.limits = tuple(limits)
        self._warned: set[tuple[Ceiling, float]] = set()
        self._prices = PriceTable(prices or {})
        self._key_of = key_of or _api_key
        self._default_output_tokens = default_output_tokens
        self._estimate = estimate or request_tokens
        self._clock = clock
        self._runs: dict[str, _BudgetedRun] = {}

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Raises AgentConfigError when money is limited and the model has no price."""
        ctx = callback_context
        config = llm_request.config
        key = self._key_of(ctx)

        store = ctx._invocation_context.services.sessions.usage
        limits = limits_in_effect(self.limits, store.budgets.get(ctx.session.app_name, ()), ctx.user_id, key)
        ceilings = self._ceilings(limits, ctx, key)
        if not ceilings:
            return None

        await self._settle(ctx)
        if config.max_output_tokens is None:
            config.max_output_tokens = self._default_output_tokens

        model = llm_request.model or ""
        counts_money = any(ceiling.money is not None for ceiling, _ in ceilings)
        price = self._price_of(model, store, counts_money=counts_money)
        call = self._new_call(ctx, key, model, price, self._estimate(llm_request), config)
        hard_limits = [ceiling for ceiling, _ in ceilings]
        refusal = await store.reserve(call.hold, hard_limits, now=self._clock())
        if refusal is not None:
            counted = await _count_tokens(ctx, llm_request)
            if counted is not None:
                call = self._new_call(ctx, key, model, price, counted, config)
                refusal = await store.reserve(call.hold, hard_limits, now=self._clock())

        if refusal is not None:
            ctx.actions.escalate = True  # a loop around this agent would call again and again …
            ctx._invocation_context.llm_calls.add()  # … and so would nested loops; this call counts for max_llm_calls
            return _refused(refusal, call.hold.amount)

        call.soft_limits = [(ceiling, share) for ceiling, share in ceilings if share is not None]
        run = self._runs.setdefault(ctx.invocation_id, _BudgetedRun(store))
        run.calls[_call_key(ctx)] = call
        if _is_live(ctx):
            run.live = call

        return None

    async def on_event_callback(
        self,
        *,
        invocation_context: InvocationContext,
        event: Event,
    ) -> None:
        """Adds the usage that a live model reports; agents that run as its tools settle their own calls."""
        run = self._runs.get(invocation_context.invocation_id)
        if run is None or run.live is None:
            return
        if event.usage_metadata is None or event.partial or event.isolation_scope is not None:
            return

        call = run.calls.pop((None, event.branch, event.author), None)
        if call is not None:
            hold = call.hold
        else:
            hold = run.live.hold._replace(amount=Amount())

        model = event.model_version or run.live.model
        price = run.live.price
        await run.store.settle(
            hold,
            event.usage_metadata,
            model=model,
            price=price,
            now=self._clock(),
        )
        await self._warn(run.store, run.live)

    async def after_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_response: LlmResponse,
    ) -> None:
        run = self._runs.get(callback_context.invocation_id)
        if run is not None:
            call = run.calls.get(_call_key(callback_context))
        else:
            call = None

        if call is not None and not _is_live(callback_context):
            call.add_reply(llm_response)
            if not llm_response.partial:
                warnings = await self._settle(callback_context)
                if warnings:
                    metadata = llm_response.custom_metadata or {}
                    llm_response.custom_metadata = {**metadata, BUDGET_WARNINGS: warnings}

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        await self._settle(callback_context)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        run = self._runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            for call in run.calls.values():
                await self._settle_call(run.store, call)

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        await self.after_run_callback(invocation_context=invocation_context)

    async def _settle(self, callback_context: CallbackContext) -> list[JsonObject]:
        """Returns warnings of budgets that are nearly used up."""
        run = self._runs.get(callback_context.invocation_id)
        if run is not None:
            call = run.calls.pop(_call_key(callback_context), None)
        else:
            call = None
        if run is None or call is None:
            return []
        return await self._settle_call(run.store, call)

    async def _settle_call(self, store: UsageStore, call: _BudgetedCall) -> list[JsonObject]:
        await store.settle(
            call.hold,
            call.spent(),
            model=call.model,
            price=call.price,
            now=self._clock(),
        )
        return await self._warn(store, call)

    async def _warn(self, store: UsageStore, call: _BudgetedCall) -> list[JsonObject]:
        """Warns of budgets whose soft limit is reached, once in a window. Returns the warnings."""
        warnings: list[JsonObject] = []
        for ceiling, share in call.soft_limits:
            if (ceiling, share) in self._warned:
                continue
            now = self._clock()
            app_name = call.hold.app_name
            reached = await StoredBudgets(store).warn_once(app_name, ceiling, share=share, now=now)
            if reached is None:
                continue
            if len(self._warned) >= _MAX_WARNED:
                self._warned.clear()
            self._warned.add((ceiling, share))
            spent, is_first = reached
            if is_first:
                warning = _warning(ceiling, spent)
                _log.warning("app %s: %s", app_name, warning["message"])
                warnings.append(warning)
        return warnings

    def _price_of(self, model: str, store: UsageStore, *, counts_money: bool) -> Price | None:
        """Raises AgentConfigError when it is unknown and the budget is in money."""
        price = self._prices.find(model) or store.prices.find(model)
        if price is None and counts_money:
            priced = ", ".join(self._prices.prices) or "none"
            raise AgentConfigError(
                f"The model {model!r} has no price, and the budget is in money. Add a pattern of its name to the "
                f"prices of the BudgetPlugin ({priced}) or to the server's price table"
            )

        return price

    def _new_call(
        self,
        ctx: CallbackContext,
        key: str | None,
        model: str,
        price: Price | None,
        prompt_tokens: int,
        config: GenerateContentConfig,
    ) -> _BudgetedCall:
        def amount(output_tokens: int) -> Amount:
            cost = (price or FREE).cost(input_tokens=prompt_tokens, output_tokens=output_tokens)
            return Amount(prompt_tokens + output_tokens, cost)

        needed = amount((config.max_output_tokens or 0) * (config.candidate_count or 1))
        names = ctx.session.app_name, ctx.user_id, ctx.session.id, ctx.invocation_id
        hold = Reservation(*names, key or "", model, day_of(self._clock()), needed)

        return _BudgetedCall(estimate=amount, price=price, hold=hold, model=model)

    def _ceilings(
        self, limits: Iterable[BudgetLimit], ctx: CallbackContext, key: str | None
    ) -> list[tuple[Ceiling, float | None]]:
        """Ceilings, and the shares at which to warn."""
        app_name = ctx.session.app_name

        owners: dict[str, tuple[str, ...] | None] = {
            "run": (ctx.invocation_id,),
            "user": (app_name, ctx.user_id),
            "app": (app_name,),
            "key": None if key is None else (key,),
        }
        today = day_of(self._clock())
        ceilings: list[tuple[Ceiling, float | None]] = []
        for limit in limits:
            owner = owners[limit.per]
            if owner is not None:
                if limit.window == "day" and limit.per != "run":
                    day = today
                else:
                    day = ""
                ceiling = Ceiling(Account(limit.per, owner, day), limit.tokens, limit.money_limit)
                ceilings.append((ceiling, limit.warn_at))

        return ceilings


def limits_in_effect(
    of_code: Sequence[BudgetLimit], stored: Sequence[Budget], user_id: str | None, key_id: str | None
) -> Sequence[BudgetLimit]:
    """The limits of a user and key: a stored budget replaces the limits of the code with its `per` and `window`, and
    that of one user or key replaces that of each. Without the user and key: those without a budget of their own."""
    if not stored:
        return of_code
    owners = {"user": user_id, "key": key_id, "app": None}
    found: dict[tuple[str, str], Budget] = {}
    for budget in stored:
        key = (budget.per, budget.window)
        if budget.owner and budget.owner != owners[budget.per]:
            continue
        if key not in found or budget.owner:
            found[key] = budget

    kept = [limit for limit in of_code if (limit.per, limit.window) not in found]
    for budget in found.values():
        limit = BudgetLimit(
            per=budget.per, tokens=budget.tokens, money=budget.money, window=budget.window, warn_at=budget.warn_at
        )
        kept.append(limit)
    return kept


def _warning(ceiling: Ceiling, spent: Amount) -> JsonObject:
    account = ceiling.account
    share = ceiling.share_of(spent)
    whose = f"{account.per} {account.owner[-1]!r}" + (f" on {account.day} (UTC)" if account.day else "")
    return {
        "message": f"{share:.0%} of the budget of {whose} are spent",
        "per": account.per,
        "owner": account.owner[-1],
        "day": account.day or None,
        "share": round(share, 4),
    }


async def _count_tokens(ctx: CallbackContext, request: LlmRequest) -> int | None:
    """The provider's count of the prompt's tokens, if available."""
    model_in: Any = getattr(ctx._invocation_context.agent, "model_in", None)
    try:
        if model_in is None:
            return None
        return await model_in(ctx._invocation_context).count_tokens(request)
    except GreenroomError:  # the estimate stands
        return None


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


def request_tokens(request: LlmRequest) -> int:
    """Estimates the prompt: contents, system instruction and tool declarations."""
    total = _text_tokens(request.config.system_text()) + contents_tokens(request.contents)
    for declaration in request.function_declarations():
        total += _text_tokens(wire.encode(declaration))
    if request.config.response_schema is not None:
        total += _text_tokens(repr(request.config.response_schema))
    return total


def contents_tokens(contents: Iterable[Content]) -> int:
    total = 0
    for content in contents:
        total += _CONTENT_TOKENS
        total += sum(_part_tokens(part) for part in content.parts or ())
    return total


def _text_tokens(text: str | bytes) -> int:
    if isinstance(text, bytes) or text.isascii():
        size = len(text)
    else:
        size = len(text.encode(errors="replace"))
    return -(-size // _BYTES_PER_TOKEN)


def _part_tokens(part: Part) -> int:
    if part.text is not None:
        return _text_tokens(part.text)
    if part.inline_data is not None or part.file_data is not None:
        return _FILE_TOKENS
    return _text_tokens(wire.encode(part))
