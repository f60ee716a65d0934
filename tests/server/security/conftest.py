"""Keys for servers that ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.security.keys import Keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys.db")
