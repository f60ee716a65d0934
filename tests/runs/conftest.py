"""Stores for engines; a file that needs only one kind overrides the fixture."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.durability.engines import Stores, stores_in


@pytest.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stores]:
    async with stores_in(tmp_path if request.param == "sqlite" else None) as opened:
        yield opened
