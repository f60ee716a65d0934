"""A real invocation with nothing behind it but a session that is never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from greenroom.invocation.context import InvocationContext, Services
from greenroom.invocation.user_context import ToolContext
from greenroom.records.session import Session


@dataclass
class NamedAgent:
    name: str = "agent"
    run_node_of_tool: None = None


@pytest.fixture
def invocation() -> InvocationContext:
    return InvocationContext(
        services=Services(sessions=cast("Any", None)),  # tools reach the session, never its store
        session=Session(id="s", app_name="app", user_id="ada"),
        invocation_id="e-1",
        agent=NamedAgent(),
    )


@pytest.fixture
def tool_context(invocation: InvocationContext) -> ToolContext:
    return ToolContext(invocation, function_call_id="call-1")
