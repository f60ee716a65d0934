"""axe-core in a page of the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Page, expect

SOURCE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
SCRIPT = """async (rules) => (await axe.run(rules === null ? {} : {runOnly: rules})).violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, nodes}) => [id, nodes.map(({html}) => html.slice(0, 200))])"""


async def serious_violations(page: Page) -> list[Any]:
    """Of all rules in the light theme, and of the contrast of colors in the dark one, once everything is loaded."""
    await page.evaluate(SOURCE.read_text())
    found: list[Any] = []
    rules_of: dict[Literal["dark", "light"], list[str] | None] = {"dark": ["color-contrast"], "light": None}
    for scheme, rules in rules_of.items():
        await page.emulate_media(color_scheme=scheme)
        await expect(page.get_by_text(re.compile("^(Loading|Drawing).*…$"))).to_have_count(0)
        found += await page.evaluate(SCRIPT, rules)
    return found
