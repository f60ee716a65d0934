"""Sandboxes of bubblewrap: the contract, and what is special to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.requirements import require_bubblewrap


@pytest.fixture
async def sandbox() -> AsyncIterator[BubblewrapSandbox]:
    require_bubblewrap()
    sandbox = BubblewrapSandbox()
    yield sandbox
    await sandbox.close()
