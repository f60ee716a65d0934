"""How the branches of a run lie in each other: dotted paths, one part for each agent whose children run apart."""

from __future__ import annotations


def is_within(branch: str | None, above: str | None) -> bool:
    """Whether a branch is the other one, or below it."""
    return above is None or branch == above or (branch or "").startswith(above + ".")
