from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation.generated_tables import DOCS, TABLES, renewed


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_tables_in_the_documentation_are_as_the_code_is(page: Path) -> None:
    text = page.read_text()
    assert text == renewed(text), "write them anew: make docs-tables"


def test_every_table_is_in_a_page() -> None:
    named = {name for page in DOCS.glob("*.md") for name in re.findall(r"<!-- table: ([\w-]+) -->", page.read_text())}
    assert named == set(TABLES)
