"""How new ids are made: random UUIDs, with ADK's prefixes."""

from __future__ import annotations

from uuid import uuid4


def new_event_id() -> str:
    return str(uuid4())


def new_session_id() -> str:
    return str(uuid4())


def new_invocation_id() -> str:
    """Also the id of the run."""
    return f"e-{uuid4()}"


def new_state_patch_id() -> str:
    """Invocation id of a state change that a client made outside a run."""
    return f"p-{uuid4()}"


def new_function_call_id() -> str:
    """For calls to which the model gave no id; the prefix keeps it from being sent back to the model."""
    return f"adk-{uuid4()}"
