"""Number of requests that the fuzzers send: GREENROOM_FUZZ."""

from __future__ import annotations

import os

REQUESTS = int(os.environ.get("GREENROOM_FUZZ", "200"))

WORTH_ALL_PHASES = 10_000
"""The edges of each parameter, and sequences of requests, take thousands by themselves."""

ENOUGH_FOR_EACH_STATUS = 200

IS_LONG = REQUESTS >= WORTH_ALL_PHASES
