"""What a server can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from greenroom.records.run import OnDisconnect


@dataclass(frozen=True, kw_only=True)
class CorsSettings:
    """Cross-origin access, by ADK's property names. An empty `origins` admits only the server's own pages.

    mapping: prefix of the paths it holds for. origins: literal, `*`, or `regex:…`. max_age: seconds.
    """

    mapping: str = "/"
    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    headers: tuple[str, ...] = ("*",)
    allow_credentials: bool = True
    max_age: int = 3600


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """on_disconnect: what a dropped connection does to its run, unless the request says otherwise.

    keep_alive_seconds: how long a stream may be silent before a comment is sent. grace_seconds: how long runs may go
    on when the server is told to stop; what is then unfinished is resumed at the next start.
    """

    cors: CorsSettings = field(default_factory=CorsSettings)
    on_disconnect: OnDisconnect = "continue"
    max_body_bytes: int = 64 * 1024 * 1024
    keep_alive_seconds: float = 15.0
    run_deadline_seconds: float | None = None
    grace_seconds: float = 5.0
    auto_create_session: bool = False
