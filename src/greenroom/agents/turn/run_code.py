"""Runs the code in a model's replies, and tells the model what came of it.

Source: ADK's code execution, state keys included. The stored event with the code is the intent, the stored result the
outcome; code whose outcome was never stored is reported as interrupted, and not run a second time.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from mimetypes import guess_extension
from typing import Any

import msgspec

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.turn.code_blocks import cut_after_code
from greenroom.code_executors.executor import (
    TIMED_OUT,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    File,
)
from greenroom.code_executors.model_native import BuiltInCodeExecutor
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, ExecutableCode, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse

CONTEXT = "_code_execution_context"
INPUT_FILES = "_code_executor_input_files"
ERROR_COUNTS = "_code_executor_error_counts"
RESULTS = "_code_execution_results"

_INTERRUPTED = "The run of this code was interrupted. Whether it had any effect is not known."


async def with_code_cut_out(
    executor: BaseCodeExecutor, callback_context: CallbackContext, reply: LlmResponse
) -> LlmResponse:
    """A whole reply as it is stored: up to its first code, or, where the model runs its code, with the images that it
    drew saved as artifacts."""
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
    """The event with the result, which the agent's model is shown next. new_file: one that is kept from now on."""
    callback_context = CallbackContext(ctx)
    state = callback_context.state
    context: JsonObject = dict(state.get(CONTEXT) or {})
    if new_file is not None:
        state[INPUT_FILES] = [*(state.get(INPUT_FILES) or []), msgspec.to_builtins(new_file)]
        context["processed_input_files"] = [*context.get("processed_input_files", []), new_file.name]
    execution_id: str | None = None
    if executor.stateful:
        execution_id = context.setdefault("execution_session_id", ctx.session.id)
    if context:
        state[CONTEXT] = context
    text = code.code or ""
    result = await _execute(
        executor,
        ctx,
        CodeExecutionInput(code=text, input_files=input_files(ctx), execution_id=execution_id),
    )
    _count(callback_context, has_failed=result.has_failed)
    _remember(callback_context, text, result)
    output = _output(result, await _save_files(callback_context, result.output_files))
    return _event(ctx, callback_context, _outcome(result), output)


def interrupted_code(ctx: InvocationContext) -> Event:
    return _event(ctx, CallbackContext(ctx), "OUTCOME_FAILED", _INTERRUPTED)


def input_files(ctx: InvocationContext) -> list[File]:
    """Those that the session's code has at hand."""
    return msgspec.convert(ctx.session.state.get(INPUT_FILES) or [], list[File])


async def _execute(executor: BaseCodeExecutor, ctx: InvocationContext, given: CodeExecutionInput) -> Any:
    if not inspect.iscoroutinefunction(executor.execute_code):
        found = await asyncio.to_thread(executor.execute_code, ctx, given)
        return await found if inspect.isawaitable(found) else found
    return await executor.execute_code(ctx, given)


def _may_fail_again(executor: BaseCodeExecutor, ctx: InvocationContext) -> bool:
    counts: JsonObject = ctx.session.state.get(ERROR_COUNTS) or {}
    return counts.get(ctx.invocation_id, 0) < executor.error_retry_attempts


def _count(callback_context: CallbackContext, *, has_failed: bool) -> None:
    """Failures in a row, of this run only: those of earlier ones are of no use any more."""
    state, run = callback_context.state, callback_context.invocation_id
    counts: JsonObject = state.get(ERROR_COUNTS) or {}
    if has_failed:
        state[ERROR_COUNTS] = {run: counts.get(run, 0) + 1}
    elif counts:
        state[ERROR_COUNTS] = {}


def _remember(callback_context: CallbackContext, code: str, result: CodeExecutionResult) -> None:
    """For those who look for results in the state, as in ADK; this run's only, so that the state does not grow."""
    state, run = callback_context.state, callback_context.invocation_id
    entry: JsonObject = {
        "code": code,
        "result_stdout": result.stdout,
        "result_stderr": result.stderr,
        "timestamp": int(time.time()),
    }
    earlier: JsonObject = state.get(RESULTS) or {}
    state[RESULTS] = {run: [*earlier.get(run, []), entry]}


async def _save_files(callback_context: CallbackContext, files: Sequence[File]) -> list[str]:
    if callback_context._invocation_context.artifact_service is None:
        return []
    for file in files:
        await callback_context.save_artifact(file.name, Part.from_bytes(data=file.content, mime_type=file.mime_type))
    return [file.name for file in files]


def _outcome(result: CodeExecutionResult) -> str:
    if result.exit_code == TIMED_OUT:
        return "OUTCOME_DEADLINE_EXCEEDED"
    return "OUTCOME_FAILED" if result.has_failed else "OUTCOME_OK"


def _output(result: CodeExecutionResult, saved: list[str]) -> str:
    pieces: list[str] = []
    if result.has_failed:
        if result.stdout:
            pieces.append(f"Output before the failure:\n{result.stdout}")
        pieces.append(result.stderr or f"The code ended with exit code {result.exit_code}.")
    else:
        pieces.append(f"Code execution result:\n{result.stdout}")
    if saved:
        pieces.append("Saved artifacts:\n" + ", ".join(f"`{name}`" for name in saved))
    elif result.output_files:
        names = ", ".join(f"`{file.name}`" for file in result.output_files)
        pieces.append(f"Written, but not kept, because there is no artifact service:\n{names}")
    return "\n\n".join(piece.rstrip("\n") for piece in pieces)


def _event(ctx: InvocationContext, callback_context: CallbackContext, outcome: str, output: str) -> Event:
    return Event(
        invocation_id=ctx.invocation_id,
        author=ctx.agent.name,
        branch=ctx.branch,
        content=Content(role="model", parts=[Part.from_code_execution_result(outcome=outcome, output=output)]),
        actions=callback_context.settle(),
    )


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
        name = image.display_name or f"{drawn_at}{f'_{at}' if len(images) > 1 else ''}{kind}"
        await callback_context.save_artifact(name, parts[at])
        parts[at] = Part(text=f"Saved as the artifact `{name}`.")
    return Content(role=content.role, parts=parts)
