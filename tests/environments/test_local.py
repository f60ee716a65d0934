"""The local environment against the contract of environments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.local import LocalEnvironment
from greenroom.testing.contracts.environment import *  # noqa: F403


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[BaseEnvironment]:
    local = LocalEnvironment(working_dir=tmp_path)
    await local.initialize()
    yield local
    await local.close()
