"""Keys are readable, stay inside their root and are never shared by two paths."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath

import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from greenroom.artifacts.layout import (
    ArtifactPath,
    Scope,
    artifact_key,
    artifact_path,
    encode_segment,
    parse_version_key,
    scope_key,
)
from greenroom.errors import InvalidRequest

_NUMBER = re.compile("[0-9]+")

_nasty = st.sampled_from(
    [
        "/",
        "\\",
        ".",
        "..",
        "%",
        "%2F",
        "%25",
        "#1",
        "0",
        "1",
        "25",
        " ",
        "\n",
        "\0",
        ":",
        "é",
        "e\u0301",
        "日",
        "a" * 190,
    ]
)
_text = st.lists(_nasty | st.text(max_size=8), min_size=1, max_size=8).map("".join)


def _is_allowed(app: str = "a", user: str = "u", session: str = "s", filename: str = "f") -> bool:
    try:
        artifact_path(app, user, session, filename)
    except InvalidRequest:
        return False
    return True


_filenames = st.builds("".join, st.tuples(st.sampled_from(["", "user:"]), _text))
# Each part is looked at by itself: of four at once, most would be thrown away.
_paths = st.builds(
    artifact_path,
    _text.filter(lambda text: _is_allowed(app=text)),
    _text.filter(lambda text: _is_allowed(user=text)),
    _text.filter(lambda text: _is_allowed(session=text)),
    _filenames.filter(lambda text: _is_allowed(filename=text)),
)


@given(_paths)
def test_a_key_leads_back_to_its_path(path: ArtifactPath) -> None:
    assert parse_version_key(path.scope, f"{artifact_key(path)}/0") == path


@given(_paths, _paths)
def test_two_paths_have_two_keys(one: ArtifactPath, other: ArtifactPath) -> None:
    assert (artifact_key(one) == artifact_key(other)) == (one == other)


@given(_paths)
def test_a_key_stays_inside_its_root(path: ArtifactPath) -> None:
    key = artifact_key(path)
    assert key.startswith(scope_key(path.scope) + "/")
    for parsed in (PurePosixPath(key), PureWindowsPath(key.replace(":", "_"))):
        assert not parsed.is_absolute()
        assert not parsed.drive
    for segment in key.split("/"):
        assert segment not in ("", ".", "..")
        assert len(segment.encode()) <= 200
        assert "\\" not in segment
        assert segment.isprintable() or not segment.isascii()


@given(_paths, _paths, st.integers(0, 10**17))
def test_no_version_lies_where_another_path_has_its_folder(
    one: ArtifactPath, other: ArtifactPath, version: int
) -> None:
    file = f"{artifact_key(one)}/{version}"
    folder = artifact_key(other)
    assert not f"{folder}/".startswith(f"{file}/")


@given(_paths)
def test_every_key_is_one_that_object_stores_take(path: ArtifactPath) -> None:
    store = MemoryStore()
    key = f"{artifact_key(path)}/0"
    obstore.put(store, key, b"x")
    assert [found["path"] for found in obstore.list(store).collect()] == [key]


@given(_text, _text, st.booleans())
def test_two_texts_give_two_segments(one: str, other: str, as_name: bool) -> None:
    first, second = (encode_segment(text, reserved=_NUMBER if as_name else None) for text in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("report.pdf", "report.pdf"),
        ("ann@example.org", "ann@example.org"),
        ("user:a b", "user:a b"),
        ("größe", "größe"),
        ("gro\u0308ße", "gro%CC%88%C3%9Fe"),
        ("a/b\\c%", "a%2Fb%5Cc%25"),
        ("..", ".%2E"),
        ("2026", "%32026"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "%/".join(["x" * 66] * 3 + ["xxx"])),
        ("x" * 199 + ".", "%/".join(["x" * 66] * 3 + ["x%2E"])),
        ("1" * 200, "%/".join(["1" * 66] * 3 + ["%311"])),
    ],
)
def test_segments_are_readable_where_they_can_be(text: str, segment: str) -> None:
    assert encode_segment(text, reserved=_NUMBER) == segment


def test_a_session_may_not_be_called_user() -> None:
    with pytest.raises(InvalidRequest) as caught:
        artifact_path("concierge", "ann", "user", "a")
    assert caught.value.location == ("path", "session_id")


def test_keys_of_others_are_no_paths() -> None:
    scope = Scope("concierge", "ann", "s-7")
    for key in ("concierge/ann/s-7/0", "concierge/ann/s-7/a/x", "concierge/ann/s-7/a/00", "concierge/ann/s-8/a/0"):
        assert parse_version_key(scope, key) is None
    assert parse_version_key(scope, "concierge/ann/s-7/a%zz/0") is None
