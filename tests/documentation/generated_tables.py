"""Tables of the documentation that are made from the code. `python -m tests.documentation.generated_tables` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import sizing
from greenroom.adk_names import adk_rows
from greenroom.errors import GreenroomError, error_classes
from greenroom.server.configuration import all_settings
from greenroom.server.replies import title, type_uri
from greenroom.server.settings import OTHER_VARIABLES
from greenroom.telemetry.run_metrics import METRICS

DOCS = Path(__file__).parents[2] / "docs"


def settings() -> str:
    rows = [
        (
            f"`{one.key}`",
            f"`{one.flag}`",
            f"`{one.variable}`",
            one.kind,
            one.default_words or f"`{one.default_in_words}`",
            one.help,
        )
        for one in all_settings()
    ]
    return _table(("setting", "flag", "variable", "value", "default", ""), rows)


def other_variables() -> str:
    return _table(("variable", ""), ((f"`{name}`", text) for name, text in OTHER_VARIABLES.items()))


def errors() -> str:
    rows = [
        (
            f"`{error.__name__}`",
            f"{int(error.status)}",
            f"`{type_uri(error.__name__)}`",
            title(error.__name__),
            "" if error is GreenroomError else f"`{error.__mro__[1].__name__}`",
        )
        for error in error_classes()
    ]
    return _table(("code", "status", "type", "title", "is a"), rows)


def metrics() -> str:
    rows = [(f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help) for one in METRICS]
    return _table(("metric", "", "labels", ""), rows)


def names_of_adk() -> str:
    """Names of a package with the same answer are one line."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in sorted(adk_rows(), key=lambda row: (row.package, row.name)):
        answer = row.status + (f": {row.words}" if row.words else "")
        names.setdefault((row.package, answer), []).append(f"`{row.name}`")
    rows = [(f"`{package}`", " ".join(found), answer) for (package, answer), found in names.items()]
    return _table(("package of ADK", "names", "offered"), rows)


def turn_costs() -> str:
    head, *rows = sizing.cost_rows(sizing.read_costs())
    return _table(head, rows)


def needs() -> str:
    head, *rows = sizing.need_rows(sizing.read_costs(), sizing.Habits())
    return _table(head, rows)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "other-variables": other_variables,
    "errors": errors,
    "metrics": metrics,
    "adk-names": names_of_adk,
    "turn-costs": turn_costs,
    "sizing": needs,
}


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
