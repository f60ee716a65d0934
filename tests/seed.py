"""The seed of all random tests: the same each time, unless GREENROOM_SEED gives another one."""

from __future__ import annotations

import os

SEED = int(os.environ.get("GREENROOM_SEED", "1"))
IS_REPEATABLE = "GREENROOM_SEED" not in os.environ
