"""The tree of errors, and the built-in errors that ADK's users catch."""

from __future__ import annotations

import pytest

from greenroom import errors


@pytest.mark.parametrize(
    ("error", "caught_as"),
    [
        (errors.SessionNotFound("a", "u", "s"), (errors.SessionError, ValueError)),
        (errors.StorageError("append", "disk full"), (errors.SessionError, errors.Unavailable)),
        (errors.SessionExists("a", "u", "s"), (errors.SessionError, errors.Conflict)),
        (errors.MissingVariable("a", "name"), (errors.AgentConfigError, KeyError)),
        (errors.AgentConfigError("wrong"), (ValueError,)),
        (errors.InvalidRequest("wrong"), (ValueError,)),
        (errors.ModelNotFound("m", []), (ValueError,)),
        (errors.MissingExtra("mcp", "mcp"), (ImportError,)),
        (errors.ToolDeclarationError("t", "why"), (errors.ToolError, errors.AgentConfigError)),
        (errors.ToolsetInitializationError("t", "why"), (errors.ToolLoadingError, errors.ToolsetError)),
    ],
)
def test_errors_can_be_caught_as(error: errors.GreenroomError, caught_as: tuple[type[Exception], ...]) -> None:
    assert all(isinstance(error, kind) for kind in caught_as)
    assert str(error) == error.detail


def test_each_error_stands_once_in_the_tree_and_can_be_made_of_its_name() -> None:
    tree = list(errors.error_classes())
    assert len(tree) == len(set(tree))
    for kind in tree:
        assert type(errors.error_of(kind.__name__, "why")) is kind
        assert f"── {kind.__name__}" in (errors.__doc__ or "") or kind is errors.GreenroomError
