"""Code in a model's replies: found, run and shown to the model with its result; CSV files for it.

Source: ADK's code execution, state keys included. The stored event with the code is the intent, the stored result the
outcome; code whose outcome was never stored is reported as interrupted, and not run a second time.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Iterator, MutableSequence, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, count
from mimetypes import guess_extension
from typing import Any

import msgspec

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.artifacts.service import belongs_to_session
from greenroom.code_executors.context import CodeExecutorContext
from greenroom.code_executors.executor import (
    TIMED_OUT,
    BaseCodeExecutor,
    BuiltInCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
)
from greenroom.environments.files import File
from greenroom.errors import InvalidRequest, TooLarge
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Content, ExecutableCode, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse


def cut_after_code(content: Content, delimiters: tuple[Delimiters, ...]) -> Content | None:
    """Cuts a reply after its first code, which becomes a part: the text after it was written without its result.

    Returns None if there is no code to run: none at all, none before the first function call, or only code that came
    with its result.
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
    match = _pattern(delimiters).search(
        "".join(part.text for part in before_calls if _is_visible_text(part) and part.text)
    )
    if match is None:
        return None
    code = next(text for text in match.groups() if text is not None)
    kept_parts = [
        *_up_to(match.start(), before_calls),
        Part(executable_code=ExecutableCode(code=code, language="PYTHON")),
    ]
    return Content(role=content.role, parts=kept_parts)


def show_code(executor: BaseCodeExecutor, contents: MutableSequence[Content]) -> None:
    """Puts code and results between the delimiters that the model writes itself. Contents of the log are replaced, not
    changed.
    """
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


def _is_visible_text(part: Part) -> bool:
    return part.text is not None and not part.thought


def _up_to(end: int, parts: list[Part]) -> list[Part]:
    """Returns the parts before that offset in their joined text."""
    kept_parts: list[Part] = []
    at = 0
    for part in parts:
        if not _is_visible_text(part):
            kept_parts.append(part)
            continue
        text = part.text or ""
        if text[: end - at]:
            kept_parts.append(msgspec.structs.replace(part, text=text[: end - at]))
        at += len(text)
        if at > end:
            break
    return kept_parts


_INTERRUPTED = "The run of this code was interrupted. Whether it had any effect is not known."


async def complete_reply(
    executor: BaseCodeExecutor, callback_context: CallbackContext, reply: LlmResponse
) -> LlmResponse:
    """Returns a complete reply as it is stored: up to its first code or, if the model runs its code, with its images
    saved as artifacts.
    """
    if reply.content is None:
        return reply
    content: Content | None = None
    if isinstance(executor, BuiltInCodeExecutor):
        content = await _with_images_saved(callback_context, reply.content)
    elif _may_fail_again(executor, callback_context._invocation_context):
        content = cut_after_code(reply.content, executor.code_block_delimiters)
    return reply if content is None else msgspec.structs.replace(reply, content=content)


def code_to_run(agent: BaseLlmAgent, ctx: InvocationContext, event: Event) -> ExecutableCode | None:
    """The code that this event of the agent ends with, if it is for the agent's executor."""
    executor = agent.code_executor
    parts = event.content.parts if event.content is not None else None
    if executor is None or not parts or event.partial or isinstance(executor, BuiltInCodeExecutor):
        return None
    return parts[-1].executable_code if _may_fail_again(executor, ctx) else None


async def run_code(
    executor: BaseCodeExecutor, ctx: InvocationContext, code: ExecutableCode, *, new_file: File | None = None
) -> Event:
    """Runs the code, and returns the event with its result, which the agent's model sees next.

    new_file: a file that the session's code can use from now on.
    """
    callback_context = CallbackContext(ctx)
    state = callback_context.state
    context = CodeExecutorContext(state)
    if new_file is not None:
        context.add_input_files([new_file])
        context.add_processed_file_names([new_file.name])
    execution_id: str | None = None
    if executor.stateful:
        execution_id = context.get_execution_id() or ctx.session.id
        context.set_execution_id(execution_id)
    state.update(context.get_state_delta())
    text = code.code or ""
    code_input = CodeExecutionInput(code=text, input_files=context.get_input_files(), execution_id=execution_id)
    result = await _execute(executor, ctx, code_input)
    state.update(result.state_delta)
    _note(context, ctx, text, result)
    output = _output(result, *await _save_files(callback_context, result.output_files))
    return _event(ctx, callback_context, _outcome(result), output)


def interrupted_code(ctx: InvocationContext) -> Event:
    return _event(ctx, CallbackContext(ctx), "OUTCOME_FAILED", _INTERRUPTED)


async def _execute(executor: BaseCodeExecutor, ctx: InvocationContext, code_input: CodeExecutionInput) -> Any:
    if not inspect.iscoroutinefunction(executor.execute_code):
        found = await asyncio.to_thread(executor.execute_code, ctx, code_input)
        return await found if inspect.isawaitable(found) else found
    return await executor.execute_code(ctx, code_input)


def _may_fail_again(executor: BaseCodeExecutor, ctx: InvocationContext) -> bool:
    return _context(ctx).get_error_count(ctx.invocation_id) < executor.error_retry_attempts


def _context(ctx: InvocationContext) -> CodeExecutorContext:
    return CodeExecutorContext(ctx.session.state)


def _note(context: CodeExecutorContext, ctx: InvocationContext, code: str, result: CodeExecutionResult) -> None:
    """Failures in a row, and results for those who look for them in the state while the run lasts: as in ADK, these
    are not stored."""
    if result.has_failed:
        context.increment_error_count(ctx.invocation_id)
    else:
        context.reset_error_count(ctx.invocation_id)
    _context(ctx).update_code_execution_result(ctx.invocation_id, code, result.stdout, result.stderr)


async def _save_files(callback_context: CallbackContext, files: Sequence[File]) -> tuple[list[str], list[str]]:
    """Returns the names of the saved files, and of those that were not kept."""
    saved: list[str] = []
    not_kept: list[str] = []
    has_store = callback_context._invocation_context.artifact_service is not None
    for file in files:
        if not has_store or not belongs_to_session(file.name):
            not_kept.append(file.name)
            continue
        part = Part.from_bytes(data=file.content, mime_type=file.mime_type)
        try:
            await callback_context.save_artifact(file.name, part)
        except (InvalidRequest, TooLarge):
            not_kept.append(file.name)
        else:
            saved.append(file.name)
    return saved, not_kept


def _outcome(result: CodeExecutionResult) -> str:
    if result.exit_code == TIMED_OUT:
        return "OUTCOME_DEADLINE_EXCEEDED"
    return "OUTCOME_FAILED" if result.has_failed else "OUTCOME_OK"


def _output(result: CodeExecutionResult, saved: list[str], not_kept: list[str]) -> str:
    pieces: list[str] = []
    if result.has_failed:
        if result.stdout:
            pieces.append(f"Output before the failure:\n{result.stdout}".rstrip("\n"))
        pieces.append(result.stderr.rstrip("\n") or f"The code ended with exit code {result.exit_code}.")
    else:
        pieces.append(f"Code execution result:\n{result.stdout}\n")
    if saved:
        pieces.append("Saved artifacts:\n" + ", ".join(f"`{name}`" for name in saved))
    if not_kept:
        names = ", ".join(f"`{name}`" for name in not_kept)
        pieces.append(
            f"Written, but not kept, because there is no store that takes files of these names and sizes:\n{names}"
        )
    return "\n\n".join(pieces)


def _event(ctx: InvocationContext, callback_context: CallbackContext, outcome: str, output: str) -> Event:
    content = Content(role="model", parts=[Part.from_code_execution_result(outcome=outcome, output=output)])
    return ctx.new_event(content=content, actions=callback_context.collect_actions())


async def _with_images_saved(callback_context: CallbackContext, content: Content) -> Content | None:
    """None when there is nothing to save, or nowhere to save it."""
    parts = list(content.parts or ())
    images = [
        at
        for at, part in enumerate(parts)
        if part.inline_data is not None and (part.inline_data.mime_type or "").startswith("image/")
    ]
    if not images or callback_context._invocation_context.artifact_service is None:
        return None
    drawn_at = f"{datetime.now(UTC):%Y%m%d_%H%M%S}"
    for at in images:
        image = parts[at].inline_data
        assert image is not None
        kind = guess_extension(image.mime_type or "") or ""
        given = image.display_name or ""
        if given and belongs_to_session(given):
            name = given
        else:
            name = f"{drawn_at}{f'_{at}' if len(images) > 1 else ''}{kind}"
        await callback_context.save_artifact(name, parts[at])
        parts[at] = Part(text=f"Saved as the artifact `{name}`.")
    return Content(role=content.role, parts=parts)


CSV = "text/csv"


async def examine_new_files(
    executor: BaseCodeExecutor, ctx: InvocationContext, contents: Sequence[Content]
) -> AsyncGenerator[Event]:
    """Yields two events for each new file: one with a program that examines it, and one with the program's result."""
    for file in list(_new_files(contents, _context(ctx).get_input_files())):
        code = ExecutableCode(code=_FIRST_LOOK.format(name=file.name), language="PYTHON")
        yield ctx.new_event(content=Content(role="model", parts=[Part(executable_code=code)]))
        yield await run_code(executor, ctx, code, new_file=file)


def name_files(executor: BaseCodeExecutor, ctx: InvocationContext, request: LlmRequest) -> None:
    """Replaces the contents of files by their names, and adds an instruction on reading them."""
    names = {file.content: file.name for file in _context(ctx).get_input_files()}
    for at, content in enumerate(request.contents if names else ()):
        file_names = [names.get(_csv_in(content, part) or b"") for part in content.parts or ()]
        if any(file_names):
            parts = [
                part if name is None else Part(text=f"Available file: `{name}`")
                for part, name in zip(content.parts or (), file_names, strict=True)
            ]
            request.contents[at] = Content(role=content.role, parts=parts)
    start, end = executor.code_block_delimiters[0]
    request.append_instructions([_INSTRUCTION.format(start=start, end=end)])


def _new_files(contents: Sequence[Content], known_files: Sequence[File]) -> Iterator[File]:
    seen = {file.content for file in known_files}
    names = {file.name for file in known_files}
    for i, content in enumerate(contents, 1):
        for j, part in enumerate(content.parts or (), 1):
            data = _csv_in(content, part)
            if data is None or data in seen:
                continue
            # Places shift when a conversation is shown from a later message on.
            numbered = (f"data_{i}_{j}_{n}.csv" for n in count(2))
            name = next(name for name in chain([f"data_{i}_{j}.csv"], numbered) if name not in names)
            seen.add(data)
            names.add(name)
            yield File(name=name, content=data, mime_type=CSV)


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
