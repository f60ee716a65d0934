"""New ids."""

from __future__ import annotations

import re

from greenroom.records.identifiers import new_event_id


def test_event_ids_ascend_with_the_time() -> None:
    ids = [new_event_id() for _ in range(1000)]
    times = [one[:18] for one in ids]
    assert times == sorted(times)
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one) for one in ids)
