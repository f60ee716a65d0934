"""PushNotifications of runs: what is sent when receivers fail, and when the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from greenroom.errors import InvalidRequest, RunNotFound
from greenroom.records.run import PushConfig, Run, RunStatus
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.push_notifications import MAX_PER_RUN, PushNotifications
from greenroom.runs.watch import RunWatches


class Receiver:
    """fails: how many times it fails before it takes a state."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.tried = 0
        self.states: list[tuple[str, str]] = []
        self._changed = asyncio.Condition()

    async def send(self, run: Run, config: PushConfig) -> None:
        async with self._changed:
            self.tried += 1
            self._changed.notify_all()
            if self.fails:
                self.fails -= 1
                raise OSError("down")
            self.states.append((config.id, run.status.value))

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(reached)


class Runs:
    """Runs without an engine: `change` stores and publishes a state as an engine does."""

    def __init__(self) -> None:
        self.store, self.watches = InMemoryRunStore(), RunWatches()

    def notifications(self, *retry_seconds: float) -> PushNotifications:
        return PushNotifications(self.store, self.watches, self.get, retry_seconds or (0.0, 0.0))

    async def get(self, run_id: str) -> Run:
        run = await self.store.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    async def change(self, status: RunStatus, message_after_seq: int = 0) -> Run:
        run = Run(id="r", app_name="a", user_id="u", session_id="s", status=status, created_at=1.0)
        run.message_after_seq = message_after_seq
        await self.store.save(run)
        self.watches.publish(run)
        return run


def receiver_of_run(config_id: str = "w") -> PushConfig:
    return PushConfig(run_id="r", id=config_id, config={})


async def test_each_state_is_sent_to_each_receiver_until_the_run_is_over() -> None:
    runs, receiver = Runs(), Receiver()
    notifications = runs.notifications()
    async with notifications.reporting(receiver.send):
        run = await runs.change(RunStatus.RUNNING)
        await notifications.save(run, receiver_of_run("a"))
        await notifications.save(run, receiver_of_run("b"))
        for number, status in enumerate((RunStatus.WAITING, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.SUCCEEDED)):
            await receiver.until(lambda number=number: len(receiver.states) == 2 * (number + 1))
            await runs.change(status, 1 + number // 2)
        await receiver.until(lambda: len(receiver.states) == 10)
    wanted = ["running", "waiting", "running", "waiting", "succeeded"]
    for name in ("a", "b"):
        assert [status for sent, status in receiver.states if sent == name] == wanted
    assert await runs.store.list_open_push_configs() == []


async def test_a_receiver_that_fails_gets_the_newest_state() -> None:
    runs, receiver = Runs(), Receiver(fails=1)
    notifications = runs.notifications(0.05)
    async with notifications.reporting(receiver.send):
        await notifications.save(await runs.change(RunStatus.RUNNING), receiver_of_run())
        await receiver.until(lambda: receiver.tried == 1)
        await runs.change(RunStatus.SUCCEEDED)
        await receiver.until(lambda: bool(receiver.states))
    assert receiver.states == [("w", "succeeded")]


async def test_a_state_is_given_up_after_the_last_retry_but_not_the_next_state() -> None:
    runs, receiver = Runs(), Receiver(fails=3)
    notifications = runs.notifications()
    async with notifications.reporting(receiver.send):
        await notifications.save(await runs.change(RunStatus.RUNNING), receiver_of_run())
        await receiver.until(lambda: receiver.tried == 3)
        await runs.change(RunStatus.FAILED)
        await receiver.until(lambda: bool(receiver.states))
    assert receiver.states == [("w", "failed")]
    assert receiver.tried == 4


async def test_the_next_process_sends_what_this_one_did_not() -> None:
    runs, down, receiver = Runs(), Receiver(fails=1), Receiver()
    notifications = runs.notifications(60.0)
    async with notifications.reporting(down.send):
        await notifications.save(await runs.change(RunStatus.SUCCEEDED), receiver_of_run())
        await down.until(lambda: down.tried == 1)
    for _ in range(2):  # the second start has nothing left to send
        async with runs.notifications().reporting(receiver.send):
            await receiver.until(lambda: bool(receiver.states))
    assert receiver.states == [("w", "succeeded")]


async def test_a_deleted_receiver_is_sent_nothing() -> None:
    runs, receiver = Runs(), Receiver(fails=1)
    notifications = runs.notifications(60.0)
    async with notifications.reporting(receiver.send):
        run = await runs.change(RunStatus.RUNNING)
        await notifications.save(run, receiver_of_run())
        await receiver.until(lambda: receiver.tried == 1)
        await notifications.delete(run, "w")
        await notifications.save(await runs.change(RunStatus.SUCCEEDED), receiver_of_run("other"))
        await receiver.until(lambda: bool(receiver.states))
    assert receiver.states == [("other", "succeeded")]


async def test_receivers_of_a_run_are_limited() -> None:
    runs = Runs()
    notifications, run = runs.notifications(), await runs.change(RunStatus.RUNNING)
    for number in range(MAX_PER_RUN):
        await notifications.save(run, receiver_of_run(str(number)))
    await notifications.save(run, receiver_of_run("0"))
    with pytest.raises(InvalidRequest, match="10 webhooks"):
        await notifications.save(run, receiver_of_run("more"))
