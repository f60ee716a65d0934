"""The clients' methods of the audit trail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from greenroom import errors
from greenroom.audit.signing import new_key_pair
from greenroom.client.async_client import AsyncClient
from greenroom.client.client import Client
from greenroom.server.settings import AuditSettings
from tests.server.agents import echo
from tests.server.conftest import Serve, Store
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve


@pytest.fixture
def store() -> Store:
    return "sqlite"


@pytest.fixture
async def url(serve: Serve) -> str:
    server = await serve(echo(), audit=AuditSettings(key=new_key_pair()[0].decode()))
    async with AsyncClient(server.url) as client:
        for number in range(3):
            await client.create_session(app_name="echo", user_id="ann", session_id=f"s-{number}")
    return server.url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as made:
        yield made


async def test_entries_are_listed_by_pages_and_filters(client: AsyncClient) -> None:
    first = await client.list_audit_entries(action=["session.created", "session.deleted"], limit=2)
    assert [entry.session_id for entry in first.entries] == ["s-2", "s-1"]
    assert first.state is not None
    assert first.state.signed is not None
    assert first.state.broken is None
    second = await client.list_audit_entries(
        action=["session.created", "session.deleted"], limit=2, page_token=first.next_page_token
    )
    assert [entry.session_id for entry in second.entries] == ["s-0"]
    assert (second.state, second.next_page_token) == (None, None)

    [entry] = (await client.list_audit_entries(session_id="s-1")).entries
    assert (entry.action, entry.app_name, entry.user_id) == ("session.created", "echo", "ann")
    assert (await client.list_audit_entries(session_id="s-1", time_from=entry.time / 1000 + 60)).entries == []
    assert (await client.list_audit_entries(app_name="echo", user_id="bob", outcome="refused")).entries == []
    with pytest.raises(errors.InvalidRequest):
        await client.list_audit_entries(page_token="x")


async def test_the_synchronous_client_lists_entries(url: str) -> None:
    def read() -> list[str]:
        with Client(url) as synchronous:
            return [entry.action for entry in synchronous.list_audit_entries(app_name="echo").entries]

    assert await asyncio.to_thread(read) == ["session.created"] * 3
