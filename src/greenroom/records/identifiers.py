"""How new ids are made: random UUIDs (RFC 9562, version 4), with ADK's prefixes."""

from __future__ import annotations

from os import urandom

_RANDOM_BITS = (1 << 128) - 1 ^ (0xF << 76) ^ (0b11 << 62)
_VERSION_BITS = (4 << 76) | (0b10 << 62)


def uuid4() -> str:
    """A third of the time of the standard library's, which builds an object first."""
    bits = int.from_bytes(urandom(16)) & _RANDOM_BITS | _VERSION_BITS
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_event_id() -> str:
    return uuid4()


def new_session_id() -> str:
    return uuid4()


def new_invocation_id() -> str:
    """Also the id of the run."""
    return f"e-{uuid4()}"


def new_state_patch_id() -> str:
    """Invocation id of a state change that a client made outside a run."""
    return f"p-{uuid4()}"


def new_function_call_id() -> str:
    """For calls to which the model gave no id; the prefix keeps it from being sent back to the model."""
    return f"adk-{uuid4()}"
