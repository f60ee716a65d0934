"""The choice of a version for a session."""

from __future__ import annotations

from collections import Counter

import pytest

from greenroom.records.app_version import Shares
from greenroom.records.session import SessionKey
from greenroom.runs.traffic import choose

KEYS = [SessionKey("desk", f"user-{number % 97}", f"s-{number}") for number in range(10_000)]


@pytest.mark.parametrize("shares", [{"v3": 90, "v4": 10}, {"v10": 30, "v9": 20, "source": 50}, {"v1": 1, "v2": 99}])
def test_versions_get_their_shares_of_the_sessions(shares: Shares) -> None:
    counts = Counter(choose(key, shares) for key in KEYS)
    for name, share in shares.items():
        assert abs(counts[name] - share * 100) < 150, counts


def test_a_version_with_nothing_gets_no_session() -> None:
    assert {choose(key, {"v1": 0, "v2": 100, "source": 0}) for key in KEYS[:1000]} == {"v2"}
    assert {choose(key, {"v1": 100, "v2": 0}) for key in KEYS[:1000]} == {"v1"}


def test_the_choice_depends_on_the_key_alone() -> None:
    for key in KEYS[:1000]:
        assert choose(key, {"v2": 40, "v10": 60}) == choose(key, {"v10": 60, "v2": 40})
    one = SessionKey("desk", "ann", "s")
    others = [SessionKey("desk", "ann", f"s{number}") for number in range(50)]
    assert {choose(other, {"v1": 50, "v2": 50}) for other in [one, *others]} == {"v1", "v2"}


def test_a_greater_share_takes_sessions_from_others_only() -> None:
    for key in KEYS[:1000]:
        if choose(key, {"v3": 70, "v4": 30}) == "v3":
            assert choose(key, {"v3": 80, "v4": 20}) == "v3"
