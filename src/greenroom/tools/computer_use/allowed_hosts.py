"""Limits Chromium to some hosts."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

_PATTERN = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_HARMLESS_SCHEMES = frozenset(("about", "blob", "chrome-error", "data"))
"""Of pages without content from elsewhere, or with content of a page that was allowed."""


class AllowedHosts:
    """The hosts that a browser may connect to: `example.com`, or `*.example.com` for the names below it.

    Chromium's resolver finds no others, nor IP addresses that are not among them: so pages, redirects, parts of pages,
    WebSockets and workers are all held to them.
    """

    def __init__(self, patterns: Collection[str]) -> None:
        """Raises ValueError for what is neither a host nor such a pattern."""
        if isinstance(patterns, str):
            raise ValueError('allowed_hosts is a list of hosts, as ["example.com", "*.example.com"]')

        self._patterns = [pattern.lower() for pattern in patterns]
        for pattern in self._patterns:
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(
                    f"allowed_hosts: {pattern!r} is neither a host, as example.com, nor the names below one, as "
                    "*.example.com"
                )

    def __str__(self) -> str:
        return ", ".join(self._patterns)

    @property
    def browser_args(self) -> list[str]:
        rules = ["MAP * ~NOTFOUND", *(f"EXCLUDE {pattern}" for pattern in self._patterns)]
        return [
            f"--host-resolver-rules={', '.join(rules)}",
            "--no-proxy-server",  # a proxy would resolve the names
            # WebRTC connects to addresses without resolving them; the first name is that of older versions.
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        ]

    def allows(self, url: str) -> bool:
        """True if the page may be opened."""
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError:
            return False

        if host is None or parts.scheme not in ("http", "https") or "\\" in parts.netloc:
            return False

        return any(
            host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern for pattern in self._patterns
        )

    def may_show(self, url: str) -> bool:
        """True if a page that the browser has opened may be shown: not files of the machine, or the browser's pages."""
        return self.allows(url) or urlsplit(url).scheme in _HARMLESS_SCHEMES
