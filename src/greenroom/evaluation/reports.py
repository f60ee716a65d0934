"""Reports of evaluations as files: JUnit XML for CI servers, Markdown for comments, and HTML for
people.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from greenroom.errors import InvalidRequest
from greenroom.evaluation.comparison import (
    Comparison,
    by_case,
    counted,
    describe_difference,
    failures_of,
    metric_summaries,
    mismatch,
    number,
    percent,
)
from greenroom.evaluation.html_report import html_report
from greenroom.evaluation.records import EvalCaseResult, EvalSetResult, EvalStatus

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+.!|<>~-])")


def write_report(
    path: Path,
    results: Sequence[EvalSetResult],
    comparison: Comparison | None = None,
) -> None:
    """Writes a report in the format of the file's name: `.xml`, `.md` or `.html`. Raises
    InvalidRequest for others.
    """
    render = report_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(results, comparison), encoding="utf-8")


def report_format(path: Path) -> Callable[[Sequence[EvalSetResult], Comparison | None], str]:
    """Raises InvalidRequest for a file's name that no format has."""
    formats = {".xml": junit_report, ".md": markdown_report, ".html": html_report}
    render = formats.get(path.suffix.lower())
    if render is None:
        raise InvalidRequest(f"A report ends with {', '.join(formats)}, not {path.name!r}")
    return render


def junit_report(results: Sequence[EvalSetResult], comparison: Comparison | None = None) -> str:
    """A test suite per set, a test case per case and sample. Cases without a verdict are skipped ones."""
    root = ElementTree.Element("testsuites")
    for set_result in results:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(set_result.eval_set_id))
        kinds = Counter(map(_junit_kind, set_result.eval_case_results))

        seconds = 0.0
        for name, samples in by_case(set_result.eval_case_results).items():
            for index, result in enumerate(samples, start=1):
                title = name if len(samples) == 1 else f"{name} #{index}"
                took = sum(turn.actual_invocation.duration or 0 for turn in result.eval_metric_result_per_invocation)
                seconds += took

                case = ElementTree.SubElement(
                    suite, "testcase", classname=_xml(set_result.eval_set_id), name=_xml(title), time=f"{took:.3f}"
                )
                kind = _junit_kind(result)
                if kind is not None:
                    problem = ElementTree.SubElement(
                        case,
                        kind,
                        message=_xml("; ".join(failures_of(result))),
                    )
                    if kind == "failure":
                        problem.text = _xml(mismatch(result))
                    else:
                        problem.text = None

        suite.set("tests", str(len(set_result.eval_case_results)))
        suite.set("failures", str(kinds["failure"]))
        suite.set("errors", str(kinds["error"]))
        suite.set("skipped", str(kinds["skipped"]))
        suite.set("time", f"{seconds:.3f}")
        suite.set(
            "timestamp",
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(set_result.creation_timestamp)),
        )

    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit_kind(result: EvalCaseResult) -> str | None:
    if result.error:
        return "error"
    return {EvalStatus.FAILED: "failure", EvalStatus.NOT_EVALUATED: "skipped"}.get(result.final_eval_status)


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("�", text)


def markdown_report(results: Sequence[EvalSetResult], comparison: Comparison | None = None) -> str:
    lines: list[str] = []
    for set_result in results:
        rate = counted(set_result.eval_case_results)
        lines += [f"## {_md(set_result.eval_set_id)}: {percent(rate)} passed", ""]
        lines += ["| metric | mean | threshold | passed |", "|---|---|---|---|"]

        for metric in metric_summaries(set_result.eval_case_results):
            if metric.passed is not None:
                passed = percent(metric.passed)
            else:
                passed = "–"
            cells = _md(metric.metric_name), number(metric.mean), number(metric.threshold), passed
            lines.append(f"| {' | '.join(cells)} |")

        lines.append("")

        for result in set_result.eval_case_results:
            if result.final_eval_status is EvalStatus.FAILED:
                reasons = _md("; ".join(failures_of(result)))
                lines += _details(f"✗ {_md(result.eval_id)}: {reasons}", "" if result.error else mismatch(result))

    if comparison is not None:
        lines += ["## Compared with the earlier results", ""]
        if comparison.passed is not None:
            lines.append(f"- pass rate: {describe_difference(comparison.passed, is_rate=True)}")

        lines += [
            f"- {_md(name)}: {describe_difference(difference, is_rate=False)}"
            for name, difference in comparison.scores.items()
        ]
        lines.append("")

        for verdict in ("worse", "better"):
            for case in comparison.of(verdict):
                lines += _details(f"{verdict}: {_md(case.eval_id)}", case.diff)

        for verdict in ("edited", "added", "removed"):
            if cases := comparison.of(verdict):
                lines += [f"{verdict}: {', '.join(_md(case.eval_id) for case in cases)}", ""]

    return "\n".join(lines)


def _details(title: str, text: str) -> list[str]:
    if not text:
        return [f"- {title}", ""]

    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return [
        f"<details><summary>{title}</summary>",
        "",
        f"{fence}diff",
        text,
        fence,
        "",
        "</details>",
        "",
    ]


def _md(text: str) -> str:
    """Escapes a text so that Markdown and HTML show it unchanged, in one line."""
    return _IN_MARKDOWN.sub(
        lambda found: f"&#{ord(found[1])};",
        " ".join(text.replace("&", "&amp;").split()),
    )
