"""Code among the text of a reply, and how a model is shown code and results of before."""

from __future__ import annotations

import re
from collections.abc import MutableSequence
from functools import lru_cache

import msgspec

from greenroom.code_executors.executor import BaseCodeExecutor, Delimiters
from greenroom.records.content import Content, ExecutableCode, Part


def cut_after_code(content: Content, delimiters: tuple[Delimiters, ...]) -> Content | None:
    """The reply up to its first code, which becomes a part; what stands behind it was written without its result.

    None when there is no code to run: none at all, none before the first function call, or only such as came with its
    result.
    """
    before_calls: list[Part] = []
    for part in content.parts or ():
        if part.function_call is not None:
            break
        before_calls.append(part)
    for index, part in enumerate(before_calls):
        is_run = index + 1 < len(before_calls) and before_calls[index + 1].code_execution_result is not None
        if part.executable_code is not None and not is_run:
            return Content(role=content.role, parts=before_calls[: index + 1])
    found = _pattern(delimiters).search("".join(part.text for part in before_calls if _is_said(part) and part.text))
    if found is None:
        return None
    code = next(text for text in found.groups() if text is not None)
    kept = [*_up_to(found.start(), before_calls), Part(executable_code=ExecutableCode(code=code, language="PYTHON"))]
    return Content(role=content.role, parts=kept)


def show_code(executor: BaseCodeExecutor, contents: MutableSequence[Content]) -> None:
    """Put code and results between the delimiters that the model writes itself. Contents of the log are replaced, not
    changed."""
    start, end = executor.code_block_delimiters[0]
    result_start, result_end = executor.execution_result_delimiters
    for at, content in enumerate(contents):
        parts = content.parts or []
        if not any(part.executable_code is not None or part.code_execution_result is not None for part in parts):
            continue
        shown: list[Part] = []
        for part in parts:
            if part.executable_code is not None:
                shown.append(Part(text=f"{start}{part.executable_code.code or ''}{end}"))
            elif part.code_execution_result is not None:
                shown.append(Part(text=f"{result_start}{part.code_execution_result.output or ''}{result_end}"))
            else:
                shown.append(part)
        is_result = all(part.code_execution_result is not None for part in parts)
        contents[at] = Content(role="user" if is_result else content.role, parts=shown)


@lru_cache(maxsize=64)
def _pattern(delimiters: tuple[Delimiters, ...]) -> re.Pattern[str]:
    blocks = (f"{re.escape(start)}(.*?){re.escape(end)}" for start, end in delimiters)
    return re.compile("|".join(blocks), re.DOTALL)


def _is_said(part: Part) -> bool:
    return part.text is not None and not part.thought


def _up_to(end: int, parts: list[Part]) -> list[Part]:
    """The parts before that place in what they say together."""
    kept: list[Part] = []
    at = 0
    for part in parts:
        if not _is_said(part):
            kept.append(part)
            continue
        text = part.text or ""
        if text[: end - at]:
            kept.append(msgspec.structs.replace(part, text=text[: end - at]))
        at += len(text)
        if at > end:
            break
    return kept
