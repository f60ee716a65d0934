"""The parts of a request that are passed on."""

from __future__ import annotations

import pytest

from greenroom.server.forwarding.owners import end_to_end_headers, target_of

KEPT = [(b"authorization", b"Bearer x"), (b"x-a", b"1"), (b"x-a", b"2"), (b"x-empty", b"")]


@pytest.mark.parametrize(
    "dropped",
    [
        [],
        [(b"connection", b"keep-alive"), (b"keep-alive", b"timeout=5")],
        [(b"connection", b"X-B , x-c"), (b"x-b", b"1"), (b"x-c", b"2")],
        [(b"x-b", b"1"), (b"connection", b"close"), (b"connection", b"x-b")],
        [(b"te", b"trailers"), (b"transfer-encoding", b"chunked"), (b"expect", b"100-continue"), (b"upgrade", b"h2c")],
    ],
)
def test_headers_of_the_connection_are_not_passed_on(dropped: list[tuple[bytes, bytes]]) -> None:
    assert end_to_end_headers([*dropped, *KEPT]) == KEPT
    assert end_to_end_headers([*KEPT, *dropped]) == KEPT


@pytest.mark.parametrize(
    ("scope", "target"),
    [
        ({"path": "/a b", "raw_path": b"/a%20b", "query_string": b"c=d&e"}, b"/a%20b?c=d&e"),
        ({"path": "/a", "raw_path": b"/a?c=d", "query_string": b"c=d"}, b"/a?c=d"),
        ({"path": "/a/b", "raw_path": b"/a%2Fb", "query_string": b""}, b"/a%2Fb"),
        ({"path": "/a", "query_string": b""}, b"/a"),
    ],
)
def test_the_path_is_passed_on_as_it_came(scope: dict[str, object], target: bytes) -> None:
    assert target_of(scope) == target
