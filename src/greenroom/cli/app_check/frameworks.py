"""Finds agents of other frameworks, and reports what of the framework's promises is kept when they are hosted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from greenroom.agents.frameworks.detect import FRAMEWORKS, Framework
from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.source import PythonFile

_EXPORTS = ("app", "root_agent", "graph", "agent")

PROMISES = {
    "langgraph": (
        "kept: state, messages, streaming, subgraphs, interrupts, breakpoints, and finished tasks after a crash; "
        "not kept: a checkpointer of its own, time travel, and plugins that answer in place of a model or a tool"
    ),
    "pydantic_ai": (
        "kept: history, streaming, tools, output types, approvals, external tools, capabilities, and results of tools "
        "after a crash; not kept: dependencies, unless root_agent = PydanticAiAgent(deps=...) gives them, models that "
        "tools call by themselves, and plugins that answer in place of a model or a tool"
    ),
    "agents": (
        "kept: history, streaming, tools, hand-offs, output types, approvals, guardrails, hosted tools, MCP servers, "
        "and results of tools after a crash; not kept: a context, unless root_agent = OpenAIAgentsAgent(context=...) "
        "gives it, sessions of its own, traces at OpenAI unless tracing=True, and plugins that answer in place of a "
        "model or a tool"
    ),
}
"""By the framework's package. `docs/frameworks.md` has them in full."""


def find_frameworks(source: PythonFile) -> Iterator[Finding]:
    """The agents of other frameworks that a file exports as an app, without running it."""
    framework = _framework_of(source)
    if framework is None:
        return

    for name in _EXPORTS:
        value = source.constant(name)
        if value is None or _is_ours(source, value):
            continue
        text = f"{name} is hosted by {framework.name}; {PROMISES[framework.package]}"
        yield Finding(source.path, value.lineno, text, is_missing=False)
        break

    if framework.package == "langgraph":
        yield from _checkpointers(source)


def _framework_of(source: PythonFile) -> Framework | None:
    packages = {one.module.partition(".")[0] for one in source.imports if one.is_at_load}
    return next((framework for framework in FRAMEWORKS if framework.package in packages), None)


def _is_ours(source: PythonFile, value: ast.expr) -> bool:
    """Whether it is an agent or an app of greenroom, which names what it hosts."""
    origin = source.resolve(value.func) if isinstance(value, ast.Call) else None
    return origin is not None and origin.startswith(("greenroom.", "google.adk."))


def _checkpointers(source: PythonFile) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        for keyword in node.keywords:
            if name == "compile" and keyword.arg == "checkpointer":
                text = "this checkpointer isn't used: the graph's checkpoints are kept in the session's log"
                yield Finding(source.path, keyword.value.lineno, text, is_missing=False)
