"""CSV files in a user's messages, kept as files for an agent's code: the model is shown their first rows, no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, MutableSequence, Sequence

from greenroom.agents.turn.run_code import input_files, run_code
from greenroom.code_executors.executor import BaseCodeExecutor, File
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, ExecutableCode, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest

CSV = "text/csv"


async def look_at_new_files(
    executor: BaseCodeExecutor, ctx: InvocationContext, contents: Sequence[Content]
) -> AsyncGenerator[Event]:
    """For each file that came in, an event with a program that looks at it, and one with what it saw."""
    for file in list(_new_files(contents, input_files(ctx))):
        code = ExecutableCode(code=_FIRST_LOOK.format(name=file.name), language="PYTHON")
        yield Event(
            invocation_id=ctx.invocation_id,
            author=ctx.agent.name,
            branch=ctx.branch,
            content=Content(role="model", parts=[Part(executable_code=code)]),
        )
        yield await run_code(executor, ctx, code, new_file=file)


def name_files(executor: BaseCodeExecutor, ctx: InvocationContext, request: LlmRequest) -> None:
    """Put the names of the files in the place of what is in them, and tell the model how to get at that."""
    names = {file.content: file.name for file in input_files(ctx)}
    if names:
        _replace(request.contents, names)
    start, end = executor.code_block_delimiters[0]
    request.append_instructions([_INSTRUCTION.format(start=start, end=end)])


def _new_files(contents: Sequence[Content], known: Sequence[File]) -> Iterator[File]:
    seen = {file.content for file in known}
    names = {file.name for file in known}
    for i, content in enumerate(contents, 1):
        for j, part in enumerate(content.parts or (), 1):
            data = _csv_in(content, part)
            if data is None or data in seen:
                continue
            name = next(name for name in _names(i, j) if name not in names)
            seen.add(data)
            names.add(name)
            yield File(name=name, content=data, mime_type=CSV)


def _names(i: int, j: int) -> Iterator[str]:
    """The first that is free: places shift when a conversation is shown from a later message on."""
    yield f"data_{i}_{j}.csv"
    n = 2
    while True:
        yield f"data_{i}_{j}_{n}.csv"
        n += 1


def _replace(contents: MutableSequence[Content], names: dict[bytes, str]) -> None:
    for at, content in enumerate(contents):
        found = [names.get(_csv_in(content, part) or b"") for part in content.parts or ()]
        if any(found):
            parts = [
                part if name is None else Part(text=f"Available file: `{name}`")
                for part, name in zip(content.parts or (), found, strict=True)
            ]
            contents[at] = Content(role=content.role, parts=parts)


def _csv_in(content: Content, part: Part) -> bytes | None:
    blob = part.inline_data
    if content.role != "user" or blob is None or not blob.data:
        return None
    return blob.data if (blob.mime_type or "").partition(";")[0].strip().lower() == CSV else None


_FIRST_LOOK = """\
import csv

with open({name!r}, newline="", encoding="utf-8", errors="replace") as file:
    rows = list(csv.reader(file))
print("File {name}:", max(len(rows) - 1, 0), "rows below the heading")
for row in rows[:6]:
    print(row)
"""

_INSTRUCTION = """\
To work with files, or to compute anything, write Python between `{start}` and `{end}` and end your reply there. It is \
run for you, and you are shown what it prints. Files that are said to be available are in its working directory. What \
you have not seen printed, you do not know: never make up a result."""
