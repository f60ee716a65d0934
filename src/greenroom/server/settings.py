"""The settings of a server: flags, variables, keys of `greenroom.toml` and their documentation are derived from these.

A field's name is its key: `grace_seconds` is `--grace-seconds`, `GREENROOM_GRACE_SECONDS` and `grace_seconds = …`; in a
nested class the outer name comes first: `[cors] max_age`, `--cors-max-age`. `Meta` holds the help (`description`), the
limits, and exceptions in `extra`: `flag` (another flag), `default` (a description of the default), `inline` (the fields
of a nested class have no prefix). A `Secret` is never shown and has no flag. An optional value with limits has a type
of its own, such as `Seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from greenroom.records.run import OnDisconnect

Seconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

TracedContent = Literal["nowhere", "debug", "everywhere"]


class Secret:
    """A text that is never shown; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(********)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, kw_only=True)
class CorsSettings:
    """Cross-origin access, with ADK's property names. With empty `origins`, only the server's own pages have access."""

    mapping: Annotated[str, Meta(description="The prefix of the paths that other origins may use.")] = "/"
    origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Web pages of other origins that may call this server: `https://example.com`, "
            "`regex:https://.*\\.example\\.com` or `*`.",
            extra={"flag": "--allow-origins"},
        ),
    ] = ()
    methods: Annotated[tuple[str, ...], Meta(description="Methods that other origins may use.")] = (
        "GET",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
    )
    headers: Annotated[tuple[str, ...], Meta(description="Headers that they may send.")] = ("*",)
    allow_credentials: Annotated[bool, Meta(description="Whether they may send cookies and other credentials.")] = True
    max_age: Annotated[int, Meta(ge=0, description="Seconds for which a browser may cache a preflight response.")] = (
        3600
    )


Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
"""Signature algorithms with public keys. Shared secrets and `none` are not allowed."""


@dataclass(frozen=True, kw_only=True)
class TokenSettings:
    """Tokens (JWT) of an identity provider."""

    jwks_url: Annotated[
        str | None, Meta(description="Where the provider publishes its keys. With it, tokens are accepted.")
    ] = None
    issuer: Annotated[str | None, Meta(description="The required `iss` of a token.")] = None
    audiences: Annotated[tuple[str, ...], Meta(description="A token's `aud` must contain one of these.")] = ()
    algorithms: Annotated[tuple[Algorithm, ...], Meta(description="Accepted signature algorithms.")] = (
        "RS256",
        "ES256",
        "EdDSA",
    )
    leeway_seconds: Annotated[
        float, Meta(ge=0, le=600, description="Accepted difference between the provider's clock and this one.")
    ] = 30.0
    subject_claim: Annotated[str, Meta(description="The claim that is the user's id.")] = "sub"
    scopes_claim: Annotated[str, Meta(description="The claim with the scopes, as text with spaces or a list.")] = (
        "scope"
    )
    apps_claim: Annotated[
        str, Meta(description="The claim with the apps the token is limited to; without it, all apps.")
    ] = "apps"
    default_scopes: Annotated[
        tuple[Literal["run", "read", "manage", "debug"], ...],
        Meta(description="Scopes of a token without any of greenroom's scopes."),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AuthSettings:
    """Authentication. Without keys and tokens, every caller may do everything."""

    keys: Annotated[
        str | None,
        Meta(
            description="The file of API keys, created by `greenroom keys create`. With it, callers need a key.",
            extra={"flag": "--keys", "default": "`DIR/.greenroom/keys.db`, if it exists"},
        ),
    ] = None
    tokens: TokenSettings = field(default_factory=TokenSettings)

    @property
    def is_on(self) -> bool:
        return self.keys is not None or self.tokens.jwks_url is not None


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """Limits of callers. Runs, requests and storage are unlimited by default."""

    runs_per_user: Annotated[
        Count | None, Meta(description="Concurrent runs of one user in all apps, including queued ones.")
    ] = None
    runs_per_app: Annotated[Count | None, Meta(description="Concurrent runs of one app.")] = None
    runs_per_server: Annotated[Count | None, Meta(description="Concurrent runs of the server.")] = None
    requests_per_second: Annotated[
        Rate | None,
        Meta(
            description="Average request rate of each API key or user; without authentication, of each client address."
        ),
    ] = None
    requests_at_once: Annotated[
        int, Meta(ge=1, description="Burst size: requests at once before that rate applies.")
    ] = 20
    artifact_bytes: Annotated[
        Count | None, Meta(description="Maximum size of an artifact that a request or a tool saves.")
    ] = None
    request_items: Annotated[
        int, Meta(ge=1, description="Parts, calls, keys and other items in the JSON of one request; 422 beyond.")
    ] = 20_000
    request_nesting: Annotated[
        int, Meta(ge=1, description="Levels of nesting in the JSON of one request; 422 beyond.")
    ] = 100
    events_per_session: Annotated[
        Count | None,
        Meta(description="Events of a session after which it accepts no new runs. Running ones continue."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings of `create_app`."""

    auth: AuthSettings = field(default_factory=AuthSettings)
    cors: CorsSettings = field(default_factory=CorsSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Accepted names in the header `Host`. By default, on a loopback address: the names of this "
            "machine, to prevent DNS rebinding; on other addresses: any.",
            extra={"flag": "--allow-hosts", "default": "see right"},
        ),
    ] = ()
    on_disconnect: Annotated[
        OnDisconnect,
        Meta(
            description="Whether a run continues or is cancelled when the client that started it disconnects; "
            "requests may override it."
        ),
    ] = "continue"
    max_body_bytes: Annotated[int, Meta(ge=1, description="Maximum size of a request body.")] = 64 * 1024 * 1024
    keep_alive_seconds: Annotated[
        Seconds, Meta(description="Seconds without events after which a stream sends a comment.")
    ] = 15.0
    run_deadline_seconds: Annotated[Seconds | None, Meta(description="Time limit of a run; requests may lower it.")] = (
        None
    )
    grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="How long running runs may continue after a stop signal; unfinished runs are resumed at the "
            "next start.",
        ),
    ] = 5.0
    traced_content: Annotated[
        TracedContent | None,
        Meta(
            description="Where traces include the content of messages: nowhere, in the debug endpoints, or in exported "
            "traces as well.",
            extra={
                "default": "`ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS`: true for everywhere, false for nowhere; else debug"
            },
        ),
    ] = None
    max_llm_calls: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Maximum number of model calls in a run; 0 for no limit. Apps and requests can only lower it.",
            extra={"default": "`ADK_MAX_LLM_CALLS`; else 500"},
        ),
    ] = None
    auto_create_session: Annotated[bool, Meta(description="Whether a run creates its session if it doesn't exist.")] = (
        False
    )
    default_model: Annotated[
        str | None,
        Meta(
            description="The model of agents without one, in apps without a `default_model`.",
            extra={"default": "ADK's `gemini-3.5-flash` where its key is set, else `local/smollm2-135m`"},
        ),
    ] = None
    allow_unknown_apps: Annotated[
        bool, Meta(description="Whether sessions and artifacts may be stored for apps that aren't served, as ADK does.")
    ] = False
    default_app: Annotated[
        str | None,
        Meta(
            description="The app of requests that name none: of `/users/…`, of `/app-info`, and of runs without "
            "`appName`.",
            extra={"default": "`ADK_DEFAULT_APP_NAME`; without it, the only app that the caller may access"},
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """The settings of `greenroom serve`."""

    host: Annotated[str, Meta(description="The address to listen on; `0.0.0.0` for other machines.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on; 0 for any free port.")] = 8000
    session_service: Annotated[
        str | None,
        Meta(
            description="The store of sessions: `sqlite:///file.db` or `memory://`.",
            extra={"default": "`DIR/.greenroom/greenroom.db`"},
        ),
    ] = None
    artifact_service: Annotated[
        str | None,
        Meta(
            description="The store of artifacts: `file:///folder`, `s3://bucket`, `gs://bucket`, `az://container` or "
            "`memory://`.",
            extra={"default": "`DIR/.greenroom/artifacts`"},
        ),
    ] = None
    memory_service: Annotated[str, Meta(description="The store of long-term memory.")] = "memory://"
    allow_anonymous: Annotated[bool, Meta(description="Whether to accept other machines without keys or tokens.")] = (
        False
    )
    build_output_dirs: Annotated[
        tuple[str, ...],
        Meta(
            description="Serve built apps instead of those in the folder: the folders of a build with packages, wheels "
            "and zip archives in them, looked for in `source_dir` and in the folders directly in it.",
            extra={"default": "`dist`, `build/lib`, `build`, if there is a `source_dir`"},
        ),
    ] = ()
    source_dir: Annotated[str | None, Meta(description="The folder of the built apps.", extra={"default": "`DIR`"})] = (
        None
    )
    reload: Annotated[
        bool,
        Meta(
            description="Whether apps are reloaded when their files change. Running runs keep the version that they "
            "started with."
        ),
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Minimum level of log lines on standard error."),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="Format of log lines: text, or one JSON object each with the run and its session."),
    ] = "text"
    idle_connection_seconds: Annotated[
        Seconds,
        Meta(description="How long an idle connection stays open; longer than in most clients' pools."),
    ] = 75.0
    server: Annotated[ServerSettings, Meta(extra={"inline": True})] = field(default_factory=ServerSettings)


OTHER_VARIABLES = {
    "GREENROOM_DEBUG": "Show the tracebacks of errors, and all log messages; as `--debug` does.",
    "GREENROOM_CONFIG": "The configuration file; as `--config` does.",
    "GREENROOM_URL": "The server of `greenroom run` and `greenroom sessions`; as `--url` does.",
    "GREENROOM_API_KEY": "The key for that server; as `--api-key` does, which other users of the machine can read.",
    "GREENROOM_CACHE_DIR": "The folder of local models, instead of the user's cache folder.",
}
"""Variables that are read before the settings, or without a server."""
