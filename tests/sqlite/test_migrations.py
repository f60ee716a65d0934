"""The numbered files: a file that a release has applied must keep its place."""

from __future__ import annotations

from importlib import resources


def test_numbers_follow_one_another():
    names = sorted(file.name for file in (resources.files("greenroom.sqlite") / "migrations").iterdir())
    numbers = [int(name.split("_")[0]) for name in names if name.endswith(".sql")]
    assert numbers == list(range(1, len(numbers) + 1)), names
