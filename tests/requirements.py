"""Requirements of tests beside Python: a browser, node, servers."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """Skips the test; fails it where GREENROOM_REQUIRE_ALL is 1, so that CI leaves none out unnoticed."""
    if os.environ.get("GREENROOM_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
