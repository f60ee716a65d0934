"""Contract of stores of usage.

Star-import these tests into a test file that has a fixture `usage_store`: a new, empty store for each test. Needs
pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from greenroom.errors import InvalidRequest
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.budget import Budget
from greenroom.records.run import Caller, Run, RunStatus
from greenroom.testing.contracts.paging import pages
from greenroom.usage.budgets import StoredBudgets
from greenroom.usage.prices import Amount, Price, PriceTable
from greenroom.usage.store import (
    HOLD_SECONDS,
    SECONDS_PER_DAY,
    Account,
    Ceiling,
    ModelDay,
    ModelUsage,
    Reservation,
    UsageStore,
)

_DAY = 20_000
_NOW = float(_DAY * SECONDS_PER_DAY)
_TODAY = "2024-10-04"
_TOMORROW = "2024-10-05"
_ANN = Account("user", ("concierge", "ann"), _TODAY)
_PRICES = PriceTable({"fast": Price(1, 10, cached_input="0.5"), "wise": Price(100, 1000)})


def _run(run_id: str = "e-1", user: str = "ann", key: str | None = None, app: str = "concierge") -> Run:
    return Run(
        id=run_id,
        app_name=app,
        user_id=user,
        session_id=f"s-{user}",
        status=RunStatus.SUCCEEDED,
        created_at=_NOW,
        caller=Caller(user_id=user, key_id=key) if key is not None else None,
    )


def _reported(prompt: int = 100, output: int = 20, **more: Any) -> GenerateContentResponseUsageMetadata:
    return GenerateContentResponseUsageMetadata(prompt_token_count=prompt, candidates_token_count=output, **more)


def _used(model: str = "fast", day: int = _DAY, calls: int = 1, **counts: Any) -> Mapping[ModelDay, ModelUsage]:
    used = ModelUsage()
    used.calls = calls
    used.reported = _reported(**counts)
    return {ModelDay(model, day): used}


def _hold(run_id: str = "e-1", tokens: int = 0, money: float = 0, *, key: str = "", model: str = "fast") -> Reservation:
    amount = Amount(tokens, Decimal(str(money)))
    return Reservation("concierge", "ann", "s-ann", run_id, key, model, _TODAY, amount)


async def _reserve(
    usage_store: UsageStore, hold: Reservation, *accounts: Account, tokens: int, now: float = _NOW
) -> bool:
    ceilings = [Ceiling(account, tokens, None) for account in accounts or (_ANN,)]
    return await usage_store.reserve(hold, ceilings, now=now) is None


async def _balance(usage_store: UsageStore, account: Account = _ANN, now: float = _NOW) -> tuple[int, int]:
    spent, held = await usage_store.balance(account, now=now)
    return spent.tokens, held.tokens


@pytest.fixture(autouse=True)
def usage_prices(usage_store: UsageStore) -> None:
    usage_store.prices = _PRICES


async def test_usage_of_runs_is_summed_by_groups(usage_store: UsageStore) -> None:
    await usage_store.record(
        _run("e-1"), _used(prompt=100, output=20, cached_content_token_count=40, thoughts_token_count=5)
    )
    await usage_store.record(_run("e-2"), {**_used("wise", calls=2), **_used("fast", _DAY + 1)})
    await usage_store.record(_run("e-3", "bob"), _used())
    await usage_store.record(_run("e-4", "bob", app="porter"), _used())
    found = await usage_store.query_usage(app_name="concierge", group_by=["user", "model", "day"])
    assert [(one.user_id, one.model, one.day, one.calls, one.total_token_count) for one in found.usage] == [
        ("ann", "fast", _TODAY, 1, 125),
        ("ann", "fast", _TOMORROW, 1, 120),
        ("ann", "wise", _TODAY, 2, 120),
        ("bob", "fast", _TODAY, 1, 120),
    ]
    first = found.usage[0]
    assert (first.prompt_token_count, first.cached_content_token_count, first.candidates_token_count) == (100, 40, 20)
    assert (first.thoughts_token_count, first.estimated_token_count, first.cost) == (5, 0, 0.00033)
    (total,) = (await usage_store.query_usage(app_name="concierge")).usage
    assert (total.user_id, total.calls, total.total_token_count) == (None, 5, 485)
    assert total.cost == pytest.approx(0.00033 + 0.03 + 2 * 0.0003)
    by_session = await usage_store.query_usage(app_name="concierge", group_by=["session", "run"])
    assert [(one.session_id, one.run_id) for one in by_session.usage] == [
        ("s-ann", "e-1"), ("s-ann", "e-2"), ("s-bob", "e-3")
    ]  # fmt: skip


async def test_usage_is_filtered(usage_store: UsageStore) -> None:
    await usage_store.record(_run("e-1"), {**_used("wise"), **_used("fast", _DAY + 1)})
    await usage_store.record(_run("e-2", "bob"), _used("fast", _DAY + 2))
    where: list[tuple[dict[str, Any], int]] = [
        ({"user_id": "ann"}, 2),
        ({"session_id": "s-bob"}, 1),
        ({"run_id": "e-1"}, 2),
        ({"model": "fast"}, 2),
        ({"first_day": _TOMORROW}, 2),
        ({"last_day": _TOMORROW}, 2),
        ({"first_day": _TOMORROW, "last_day": _TOMORROW, "user_id": "ann"}, 1),
        ({"user_id": "eve"}, 0),
    ]
    for terms, calls in where:
        (total,) = (await usage_store.query_usage(app_name="concierge", **terms)).usage
        assert total.calls == calls, terms


async def test_sums_are_listed_in_pages(usage_store: UsageStore) -> None:
    for number in range(7):
        await usage_store.record(_run(f"e-{number}", f"u{number // 2}"), _used())
    listing = partial(usage_store.query_usage, app_name="concierge", group_by=["user", "run"], limit=3)
    read = await pages(lambda token: listing(page_token=token))
    seen = [(one.user_id, one.run_id) for page in read for one in page.usage]
    assert seen == [(f"u{number // 2}", f"e-{number}") for number in range(7)]
    for bad in ("nonsense", "WzEsW11d"):
        with pytest.raises(InvalidRequest):
            await usage_store.query_usage(app_name="concierge", group_by=["user"], page_token=bad)
    with pytest.raises(InvalidRequest):
        await usage_store.query_usage(app_name="concierge", limit=0)


async def test_an_unknown_price_is_no_price_of_zero(usage_store: UsageStore) -> None:
    await usage_store.record(_run("e-1"), {**_used("new"), **_used("fast")})
    found = await usage_store.query_usage(app_name="concierge", group_by=["model"])
    assert [(one.model, one.cost, one.unpriced_token_count) for one in found.usage] == [
        ("fast", 0.0003, 0), ("new", None, 120)
    ]  # fmt: skip
    (total,) = (await usage_store.query_usage(app_name="concierge")).usage
    assert (total.cost, total.unpriced_token_count, total.total_token_count) == (None, 120, 240)
    assert found.currency == "USD"
    assert (await usage_store.query_usage(app_name="nothing")).usage[0].cost == 0


async def test_later_usage_of_a_run_replaces_the_earlier(usage_store: UsageStore) -> None:
    usage_store.record(_run(), _used(prompt=10))
    await usage_store.record(_run(), _used(prompt=30, calls=2))
    (total,) = (await usage_store.query_usage(app_name="concierge")).usage
    assert (total.calls, total.total_token_count) == (2, 50)


async def test_reservations_count_until_they_are_settled(usage_store: UsageStore) -> None:
    first = _hold("e-1", 80)
    second = _hold("e-2", 30)
    assert await _reserve(usage_store, first, tokens=100)
    refusal = await usage_store.reserve(second, [Ceiling(_ANN, 100, None)], now=_NOW)
    assert refusal is not None
    assert (refusal.ceiling.account, refusal.spent.tokens, refusal.held.tokens) == (_ANN, 0, 80)
    await usage_store.settle(first, _reported(40, 10), model="fast-1", price=None, now=_NOW)
    assert await _balance(usage_store) == (50, 0)
    assert await _reserve(usage_store, second, tokens=100)
    await usage_store.settle(second, None, model="fast", price=None, now=_NOW)
    assert await _balance(usage_store) == (50, 0)


async def test_a_reservation_is_made_in_all_accounts_or_none(usage_store: UsageStore) -> None:
    app = Account("app", ("concierge",), _TODAY)
    ceilings = [Ceiling(app, 1000, None), Ceiling(_ANN, 10, None)]
    assert await usage_store.reserve(_hold(tokens=50), ceilings, now=_NOW) is not None
    assert await _balance(usage_store, app) == (0, 0)


async def test_reservations_side_by_side_do_not_exceed_the_limit(usage_store: UsageStore) -> None:
    made = await asyncio.gather(*(_reserve(usage_store, _hold(f"e-{n}", 30), tokens=100) for n in range(10)))
    assert sum(made) == 3


async def test_a_reservation_expires(usage_store: UsageStore) -> None:
    assert await _reserve(usage_store, _hold("e-1", 80), tokens=100)
    later = _NOW + HOLD_SECONDS + 1
    assert await _reserve(usage_store, _hold("e-2", 30), tokens=100, now=later)
    await usage_store.settle(_hold("e-1", 80), _reported(), model="fast", price=None, now=later)
    assert await _balance(usage_store, now=later) == (120, 30)
    assert not await _reserve(usage_store, _hold("e-1", 1), tokens=150, now=later)
    assert await _reserve(usage_store, _hold("e-1", 1), tokens=151, now=later)
    assert await _balance(usage_store, now=later) == (120, 31)


async def test_accounts_are_counted_apart(usage_store: UsageStore) -> None:
    await usage_store.record(_run("e-1", key="k-1"), {**_used(), **_used("fast", _DAY + 1)})
    await usage_store.record(_run("e-2", "bob"), _used())
    for account, tokens in (
        (Account("run", ("e-1",)), 240),
        (_ANN, 120),
        (Account("user", ("concierge", "ann")), 240),
        (Account("user", ("porter", "ann")), 0),
        (Account("app", ("concierge",), _TODAY), 240),
        (Account("app", ("concierge",)), 360),
        (Account("key", ("k-1",), _TOMORROW), 120),
        (Account("key", ("",)), 0),
    ):
        assert await _balance(usage_store, account) == (tokens, 0), account


async def test_money_is_limited_like_tokens(usage_store: UsageStore) -> None:
    ceiling = Ceiling(_ANN, None, Decimal("0.001"))
    hold = _hold("e-1", 100, 0.0008)
    assert await usage_store.reserve(hold, [ceiling], now=_NOW) is None
    assert await usage_store.reserve(_hold("e-2", 100, 0.0003), [ceiling], now=_NOW) is not None
    await usage_store.settle(hold, _reported(), model="fast", price=Price(2, 20), now=_NOW)
    assert await usage_store.balance(_ANN, now=_NOW) == (Amount(120, Decimal("0.0006")), Amount())


async def test_the_record_of_a_run_replaces_what_was_settled(usage_store: UsageStore) -> None:
    """It counts for the key of the reservations, and at their price, and leaves what was estimated."""
    hold = _hold(tokens=80, key="k-2", model="vendor/quick")
    assert await _reserve(usage_store, hold, tokens=100)
    await usage_store.settle(hold, _reported(), model="quick", price=Price(2, 20), now=_NOW)
    await usage_store.settle(_hold(key="k-2"), Amount(7, Decimal("0.5")), model="quick", price=Price(2, 20), now=_NOW)
    assert await _reserve(usage_store, hold, tokens=1000)
    await usage_store.record(_run(key="k-1"), _used("quick", calls=2, prompt=200, output=40))
    key = Account("key", ("k-2",))
    assert await usage_store.balance(key, now=_NOW) == (Amount(247, Decimal("0.5012")), Amount())
    (total,) = (await usage_store.query_usage(app_name="concierge", group_by=["model"])).usage
    assert (total.calls, total.total_token_count, total.estimated_token_count) == (3, 247, 7)


async def test_names_may_hold_any_characters(usage_store: UsageStore) -> None:
    for name in ("a/b", 'it\'s "quoted"', "\U0001f95e", "%_"):
        await usage_store.record(_run(name, name), _used(name))
        (one,) = (await usage_store.query_usage(app_name="concierge", user_id=name, group_by=["run", "model"])).usage
        assert (one.run_id, one.model) == (name, name)


async def test_the_usage_of_a_forgotten_user_is_nobodys(usage_store: UsageStore) -> None:
    for user in ("ann", "bob"):
        await usage_store.record(_run(f"e-{user}", user), _used())
    budgets = StoredBudgets(usage_store)
    for user in ("ann", "bob"):
        await budgets.put("concierge", Budget(per="user", user_id=user, tokens=5))
    await usage_store.write(
        [("INSERT INTO budget_warnings VALUES (?, ?, ?, ?, ?)", ("concierge", "user", '["concierge","ann"]', "", 1.0))]
    )
    await usage_store.forget_user(app_name="concierge", user_id="ann")
    await budgets.load()
    assert [budget.user_id for budget in usage_store.budgets["concierge"]] == ["bob"]
    assert await usage_store.fetch("SELECT * FROM budget_warnings") == []
    left = await usage_store.query_usage(app_name="concierge", group_by=["user", "session"])
    assert [(usage.user_id, usage.session_id) for usage in left.usage] == [("", ""), ("bob", "s-bob")]
