from __future__ import annotations

from greenroom.apps.env_file import parse


def test_lines_of_all_kinds() -> None:
    text = (
        "# a comment\n"
        "PLAIN=abc\n"
        "  export EXPORTED = with spaces  # and a comment\n"
        "HASH=a#b\n"
        "EMPTY=\n"
        "SINGLE='as $it \\n is # here'\n"
        'DOUBLE="a \\"quote\\", a\\nline # here"  # out\n'
        'LINES="one\ntwo"\r\n'
        "WINDOWS=crlf\r\n"
        "UNCLOSED='abc\n"
        "URL=postgres://u:p@h/db?a=b\n"
        "no assignment\n"
        "1ST=not a name\n"
        "TWICE=1\n"
        "TWICE=2"
    )
    assert parse(text) == {
        "PLAIN": "abc",
        "EXPORTED": "with spaces",
        "HASH": "a#b",
        "EMPTY": "",
        "SINGLE": "as $it \\n is # here",
        "DOUBLE": 'a "quote", a\nline # here',
        "LINES": "one\ntwo",
        "WINDOWS": "crlf",
        "UNCLOSED": "'abc",
        "URL": "postgres://u:p@h/db?a=b",
        "TWICE": "2",
    }
