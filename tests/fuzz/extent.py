"""How much is asked: GREENROOM_FUZZ times, the same again with GREENROOM_SEED."""

from __future__ import annotations

import os
import random

REQUESTS = int(os.environ.get("GREENROOM_FUZZ", "300"))
SEED = int(os.environ.get("GREENROOM_SEED") or random.randrange(2**32))

WORTH_ALL_PHASES = 10_000
"""The edges of each parameter, and sequences of requests, take thousands by themselves."""

IS_LONG = REQUESTS >= WORTH_ALL_PHASES
