"""Reports are well formed, complete, and show what a model said as text only."""

from __future__ import annotations

import os
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from greenroom.errors import InvalidRequest
from greenroom.evaluation.comparison import compare_results
from greenroom.evaluation.html_report import html_report
from greenroom.evaluation.records import EvalCaseResult, EvalSetResult
from greenroom.evaluation.reports import junit_report, markdown_report, write_report
from tests.evaluation.made import result
from tests.requirements import skip_or_fail

EVIL = "</pre><script>alert(1)</script> `|<b>*x* \x00 ]]>"


def of(*results: EvalCaseResult) -> EvalSetResult:
    return EvalSetResult(
        eval_set_result_id="r", eval_set_result_name="r", eval_set_id="travel", eval_case_results=list(results)
    )


RESULTS = of(
    result("good", 0.9),
    result("bad", 0.3, said=EVIL, city="Rome"),
    result("open", None),
    result("down", 1.0, error="the <model> is down"),
    result("good", 0.85),
)


def test_junit_has_a_test_case_per_sample() -> None:
    root = ElementTree.fromstring(junit_report([RESULTS]))
    [suite] = root.findall("testsuite")
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "time")} == {
        "name": "travel",
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
        "time": "2.000",
    }
    assert [case.get("name") for case in suite] == ["good #1", "good #2", "bad", "open", "down"]
    failure, error = root.find(".//failure"), root.find(".//error")
    assert failure is not None
    assert error is not None
    assert failure.get("message") == "response_match_score: 0.3, at least 0.8"
    assert '-call find {"city":"Oslo"}\n+call find {"city":"Rome"}' in (failure.text or "")
    assert "<script>alert(1)</script>" in (failure.text or "")
    assert error.get("message") == "the <model> is down"


def test_markdown_has_metrics_failures_and_the_comparison() -> None:
    found = compare_results([result("good", 0.1), result("bad", 0.9)], RESULTS.eval_case_results)
    text = markdown_report([RESULTS], found)
    assert "## travel: 50% of 4 (15%–85%) passed" in text
    assert "| response&#95;match&#95;score | 0.683 | 0.8 | 67% of 3 (21%–94%) |" in text
    assert "✗ down: the &#60;model&#62; is down" in text
    assert '```diff\n@@ -1,4 +1,4 @@\n user: Where to?\n-call find {"city":"Oslo"}' in text
    assert "- pass rate: +0.0 points" in text
    assert "worse: bad" in text
    assert "added: open, down" in text


def test_a_fence_is_longer_than_those_in_a_text() -> None:
    text = markdown_report([of(result("bad", 0.1, said="````\nout\n````"))])
    assert text.count("`````diff") == text.count("\n`````\n") == 1


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.names: set[str] = set()
        self.sources: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "!doctype"):
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def test_html_is_one_file_without_scripts_and_shows_texts_as_they_are() -> None:
    found = compare_results([result("good", 0.1), result("bad", 0.9), result("gone<i>", 1)], RESULTS.eval_case_results)
    page = html_report([RESULTS, of(result(EVIL, 0.1))], found)
    tags = _Tags()
    tags.feed(page)
    tags.close()
    assert tags.opened == []
    assert tags.sources == []
    assert {"svg", "rect", "details", "table"} <= tags.names
    assert not tags.names & {"script", "b*x*", "link", "img", "i"}
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert "prefers-color-scheme: dark" in page
    assert "1 better, 1 worse, 2 added, 1 removed" in page


def test_a_report_of_nothing_is_one_too() -> None:
    for report in (junit_report([of()]), markdown_report([of()]), html_report([of()], compare_results([], []))):
        assert "travel" in report


def test_the_name_of_the_file_decides_the_format(tmp_path: Path) -> None:
    for name, begin in (("a.xml", "<?xml"), ("b/c.md", "## travel"), ("d.html", "<!doctype html>")):
        write_report(tmp_path / name, [RESULTS])
        assert (tmp_path / name).read_text().startswith(begin)
    with pytest.raises(InvalidRequest, match=r"\.xml, \.md, \.html"):
        write_report(tmp_path / "e.txt", [RESULTS])


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_html_is_readable_in_a_browser(scheme: str, tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    found = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if found is None:
        skip_or_fail("There is no Chromium; `make browser` installs one")
    before = [result(f"case {number}", 0.3 + 0.012 * number) for number in range(50)]
    after = [
        result(f"case {number}", 0.5 + 0.0099 * number, said="Yes." if number > 37 else "Done.") for number in range(50)
    ]
    path = tmp_path / "report.html"
    write_report(path, [of(*after, *RESULTS.eval_case_results)], compare_results(before, after))
    async with async_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=found, args=flags)
        try:
            page = await browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 1400})  # pyright: ignore
            problems: list[str] = []
            page.on("console", lambda message: problems.append(message.text))
            await page.goto(path.as_uri())
            await page.locator("details").first.locator("summary").click()
            if prefix := os.environ.get("REPORT_SCREENSHOT"):
                await page.screenshot(path=f"{prefix}-{scheme}.png", full_page=True)
            colors = await page.evaluate(
                "[document.body, document.querySelector('ins')].map(e => getComputedStyle(e).backgroundColor)"
            )
            overflow = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        finally:
            await browser.close()
    assert problems == []
    assert not overflow
    assert (
        colors
        == {
            "light": ["rgb(255, 255, 255)", "rgb(228, 245, 233)"],
            "dark": ["rgb(20, 23, 26)", "rgb(21, 53, 31)"],
        }[scheme]
    )
