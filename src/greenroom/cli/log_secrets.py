"""Keeps keys and passwords out of log lines: errors of vendors and drivers quote what they were given."""

from __future__ import annotations

import logging
import os
import re

HIDDEN = "***"

_SECRET_NAME = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values are words that stand elsewhere, too."""

_KNOWN_FORMS = re.compile(
    r"""(?x)
    (?P<scheme> \b(?:Bearer|Basic)\ +) [^\s"',;)]{8,}
    | (?P<user> ://[^\s/:@]*:) [^\s/@]+ (?=@)
    | (?P<name> [?&;](?:api_?key|key|token|access_token|password|secret)=) [^\s"'&;)]+
    | \b(?: gr_[0-9a-f]{10}_[\w-]{43} | sk-[\w-]{8,} | AIza[\w-]{20,} | gh[opsu]_\w{20,} | xox[a-z]-[\w-]{10,}
    | AKIA[0-9A-Z]{16} | eyJ[\w-]{8,}\.[\w-]+\.[\w-]* )
    """,
    re.IGNORECASE,
)


def hide_secrets(text: str) -> str:
    """Values of environment variables that are named like secrets, and what has the form of one."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and value in text and _SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    return _KNOWN_FORMS.sub(lambda found: (found["scheme"] or found["user"] or found["name"] or "") + HIDDEN, text)


class TextFormatter(logging.Formatter):
    """Log lines for people, tracebacks in full."""

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))
