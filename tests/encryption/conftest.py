"""Keys for the tests of encryption."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.encryption.local_keys import LocalKeys, add_key, keys_of_file


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    """A file with one key."""
    path = str(tmp_path / "keys.toml")
    add_key(path)
    return path


@pytest.fixture
def keys(key_file: str) -> LocalKeys:
    return keys_of_file(key_file)
