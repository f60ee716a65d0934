"""Stores of sessions with and without the cache, for the tests in which it matters."""

from __future__ import annotations

import pytest

_HOT = 64 * 1024 * 1024
_COLD = 0
_READ_THROUGH_THE_CACHE = ("appending", "reading")
"""The contract's parts in which sessions are loaded; lists, forks and deletions never look into the cache."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes `cache_bytes` with sessions in memory (hot), and reading each from the store (cold)."""
    if "cache_bytes" not in metafunc.fixturenames:
        return
    module = metafunc.function.__module__
    if "contracts" in module and module.rpartition(".")[2] not in _READ_THROUGH_THE_CACHE:
        metafunc.parametrize("cache_bytes", [_HOT], ids=["hot"])
    else:
        metafunc.parametrize("cache_bytes", [_HOT, _COLD], ids=["hot", "cold"])
