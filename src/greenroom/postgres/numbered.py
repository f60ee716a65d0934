"""Numbers the parameters of statements."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count


@lru_cache(maxsize=1000)
def numbered(statement: str) -> str:
    """`?` as `$1`, `$2`, …; `?1` as `$1`."""
    numbers = count(1)
    return re.sub(r"\?(\d*)", lambda found: f"${found[1] or next(numbers)}", statement)
