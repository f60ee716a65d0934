"""Sandboxes that are kept for keys, with real ones of bubblewrap."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.sandbox import Sandbox
from greenroom.environments.sandbox_pool import SandboxPool
from tests.requirements import skip_or_fail


@pytest.fixture(autouse=True)
def bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        skip_or_fail("bubblewrap is not installed")


async def value_of_x(pool: SandboxPool, key: str, code: str = "") -> str:
    async with pool.use(key) as kept:
        code = f"{code}\nprint(globals().get('x'))"
        return (await kept.sandbox.run_python(code, keeps_variables=True)).stdout.strip()


async def test_each_key_keeps_its_sandbox() -> None:
    pool = SandboxPool(BubblewrapSandbox())
    try:
        assert await value_of_x(pool, "a", "x = 1") == "1"
        assert await value_of_x(pool, "b") == "None"
        assert await value_of_x(pool, "a") == "1"
    finally:
        await pool.close()
    assert await value_of_x(pool, "a") == "None"
    await pool.close()


async def test_of_unused_ones_those_used_last_are_kept() -> None:
    pool = SandboxPool(BubblewrapSandbox(), max_kept=2)
    for key in ("a", "b", "a", "c"):
        await value_of_x(pool, key, f"x = {key!r}")
    assert [await value_of_x(pool, key) for key in ("a", "c", "b")] == ["a", "c", "None"]
    await pool.close()


async def test_one_that_is_not_used_for_long_is_closed() -> None:
    pool = SandboxPool(BubblewrapSandbox(), idle_seconds=0.2)
    async with pool.use("a") as kept:
        await kept.sandbox.execute("true")
        sandbox = kept.sandbox
    async with asyncio.timeout(5):
        while sandbox.is_running:
            await asyncio.sleep(0.05)
    await pool.close()


async def test_uses_of_one_key_wait_for_each_other() -> None:
    pool = SandboxPool(BubblewrapSandbox())
    order: list[str] = []

    async def use(name: str) -> None:
        async with pool.use("a") as kept:
            order.append(name)
            await kept.sandbox.execute("sleep 0.1")
            order.append(name)

    await asyncio.gather(use("1"), use("2"))
    assert order == ["1", "1", "2", "2"]
    await pool.close()


async def test_a_cancelled_or_spoiled_one_is_replaced() -> None:
    pool = SandboxPool(BubblewrapSandbox())
    assert await value_of_x(pool, "a", "x = 1") == "1"
    using = asyncio.create_task(value_of_x(pool, "a", "import time; time.sleep(60)"))
    await asyncio.sleep(0.3)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert await value_of_x(pool, "a", "x = 2") == "2"

    async with pool.use("a") as kept:
        kept.is_spoiled = True
    assert await value_of_x(pool, "a", "") == "None"
    await pool.close()


async def test_one_that_has_ended_starts_empty() -> None:
    pool = SandboxPool(BubblewrapSandbox())
    async with pool.use("a") as kept:
        first = kept.id
        kept.versions["f"] = 1
        await kept.sandbox.run_python("import os, signal; os.kill(1, signal.SIGKILL)")
        await kept.sandbox.close()
    async with pool.use("a") as kept:
        assert kept.id != first
        assert kept.versions == {}
    await pool.close()


async def test_a_use_that_waited_while_the_pool_was_closed_leaves_no_sandbox() -> None:
    pool = SandboxPool(BubblewrapSandbox())
    sandboxes: list[Sandbox] = []

    async def use(code: str) -> None:
        async with pool.use("a") as kept:
            await kept.sandbox.run_python(code)
            sandboxes.append(kept.sandbox)

    first = asyncio.create_task(use("import time; time.sleep(0.3)"))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(use("1"))
    await asyncio.sleep(0.05)
    await pool.close()
    await asyncio.gather(first, second)
    assert sandboxes
    assert not any(sandbox.is_running for sandbox in sandboxes)
