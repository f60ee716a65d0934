"""Schedules of apps in folders: in YAML, and when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import AppLoader
from greenroom.errors import AppLoadError
from greenroom.records.schedule import Schedule
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from tests.apps.conftest import AgentsDir

AGENT = "name: shop\nmodel: scripted\ninstruction: Help."


@pytest.fixture
def loader(agents_dir: AgentsDir) -> Iterator[DirectoryAppLoader]:
    made = DirectoryAppLoader(agents_dir.path, hot_reload=True)
    yield made
    made.close()


def write(agents_dir: AgentsDir, schedules: str) -> None:
    agents_dir.write("shop/root_agent.yaml", AGENT)
    agents_dir.write("shop/app_settings.yaml", schedules)


def test_the_settings_beside_the_root_agent_have_the_schedules(
    agents_dir: AgentsDir, loader: DirectoryAppLoader
) -> None:
    write(
        agents_dir,
        """
        schedules:
          - id: opening
            user_id: ada
            cron: 30 16 * * TUE-SAT
            timeZone: Europe/Berlin
            message: What is on the menu?
          - userId: ada
            at: 2026-03-01T09:00:00+01:00
            session_id: s-1
            overlap: enqueue
            request: {new_message: {parts: [{text: hi}]}, max_llm_calls: 3}
        """,
    )
    opening, once = loader.load("shop").schedules
    assert (opening.id, opening.cron, opening.time_zone) == ("opening", "30 16 * * TUE-SAT", "Europe/Berlin")
    assert opening.request.new_message is not None
    assert opening.request.new_message.text() == "What is on the menu?"
    assert once.at == 1772352000.0
    assert once.id.startswith("app_")
    assert (once.session_id, once.request.max_llm_calls) == ("s-1", 3)


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        (
            "schedules:\n  - {user_id: ada, cron: daily}",
            r"app_settings.yaml:2: schedules\[0\].cron: cron has five fields",
        ),
        ("schedules:\n  - {user_id: ada, crom: 0 9 * * *}", "did you mean 'cron'"),
        ("schedules:\n  - {cron: 0 9 * * *}", "app_settings.yaml:2.*userId"),
        ("schedules:\n  - {user_id: ada, at: tomorrow}", "must be a time with an offset"),
        ("schedules:\n  - {user_id: ada, at: 2026-03-01T09:00:00}", "has no offset"),
        ("schedules:\n  - {user_id: ada, at: 5, message: [a]}", "must be a text"),
        ("schedules:\n  - {user_id: ada, at: 5, message: a, request: {}}", "either message or request"),
        ("schedules: 5", "must be a list"),
        ("schedule: []", "did you mean 'schedules'"),
    ],
)
def test_a_mistake_is_reported_with_its_line(
    agents_dir: AgentsDir, loader: DirectoryAppLoader, schedules: str, message: str
) -> None:
    write(agents_dir, schedules)
    with pytest.raises(AppLoadError, match=message):
        loader.load("shop")


async def listed(engine: InProcessRunEngine) -> list[Schedule]:
    return (await engine.schedules.list(app_name="shop")).schedules


async def test_a_changed_file_changes_the_stored_schedules(agents_dir: AgentsDir, loader: AppLoader) -> None:
    write(agents_dir, "schedules:\n  - {id: a, user_id: ada, cron: 0 9 * * *, message: hi}")
    engine = InProcessRunEngine(apps=loader, run_store=InMemoryRunStore(), session_service=InMemorySessionService())
    await engine.recover()
    (first,) = await listed(engine)
    assert first.cron == "0 9 * * *"
    await engine.schedules.set_paused("shop", "a", is_paused=True)

    write(agents_dir, "schedules:\n  - {id: a, user_id: ada, cron: 0 10 * * *, message: hi}")
    async with asyncio.timeout(10):
        while (await listed(engine))[0].cron != "0 10 * * *":
            await asyncio.sleep(0.02)
    (changed,) = await listed(engine)
    assert changed.is_paused
    assert changed.created_at == first.created_at

    write(agents_dir, "schedules: []")
    async with asyncio.timeout(10):
        while await listed(engine):
            await asyncio.sleep(0.02)
    await engine.close()
    assert loader.reloaded is None
