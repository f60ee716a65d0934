"""Tables of the documentation that are made from the code. `python -m tests.documentation.generated_tables` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from greenroom.server.setting_table import setting_rows
from greenroom.server.settings import OTHER_VARIABLES, ServeSettings

DOCS = Path(__file__).parents[2] / "docs"


def settings() -> str:
    rows = [
        (
            f"`{row.dotted}`",
            "" if row.is_secret else f"`{row.flag}`",
            f"`{row.variable}`",
            row.kind,
            row.default_words or f"`{row.default_in_words}`",
            row.help,
        )
        for row in setting_rows(ServeSettings)
    ]
    return _table(("setting", "flag", "variable", "value", "default", ""), rows)


def other_variables() -> str:
    return _table(("variable", ""), ((f"`{name}`", text) for name, text in OTHER_VARIABLES.items()))


TABLES: dict[str, Callable[[], str]] = {"settings": settings, "other-variables": other_variables}


def renewed(page: str) -> str:
    """The page with each `<!-- table: name -->` followed by the table as it is now, up to `<!-- end -->`."""
    return re.sub(
        r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    for path in DOCS.glob("*.md"):
        text = path.read_text()
        if renewed(text) != text:
            path.write_text(renewed(text))
            print(f"wrote {path}")
