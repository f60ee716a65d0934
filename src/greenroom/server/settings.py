"""What a server can be told, each thing once: flags, variables, keys of `greenroom.toml` and the documentation follow.

A field's name is its key: `grace_seconds` is `--grace-seconds`, `GREENROOM_GRACE_SECONDS` and `grace_seconds = …`; in a
nested class the outer name comes first: `[cors] max_age`, `--cors-max-age`. `Meta` holds the help (`description`), the
limits, and in `extra` what differs: `flag` (another flag), `default` (words for a default that is no value), `inline`
(a nested class whose fields stand outside). A value that must not be shown is a `Secret`; it has no flag. The limits of
an optional value are those of a type of its own, as `Seconds`.
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
    """A text that is never shown: only `reveal` gives it away."""

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
    """Cross-origin access, by ADK's property names. An empty `origins` admits only the server's own pages."""

    mapping: Annotated[str, Meta(description="The beginning of the paths that other origins may use.")] = "/"
    origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Web pages of other origins that may call this server: `https://example.com`, "
            "`regex:https://.*\\.example\\.com` or `*`.",
            extra={"flag": "--allow-origins"},
        ),
    ] = ()
    methods: Annotated[tuple[str, ...], Meta(description="What other origins' pages may do.")] = (
        "GET",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
    )
    headers: Annotated[tuple[str, ...], Meta(description="Headers that they may send.")] = ("*",)
    allow_credentials: Annotated[bool, Meta(description="Whether they may send cookies and the like.")] = True
    max_age: Annotated[int, Meta(ge=0, description="For how many seconds a browser may remember the permission.")] = (
        3600
    )


Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
"""Of signatures with a public key. Shared secrets and `none` are not among them."""


@dataclass(frozen=True, kw_only=True)
class TokenSettings:
    """Tokens (JWT) of an identity provider."""

    jwks_url: Annotated[
        str | None, Meta(description="Where the provider publishes its keys. With it, tokens are accepted.")
    ] = None
    issuer: Annotated[str | None, Meta(description="What a token's `iss` must be.")] = None
    audiences: Annotated[tuple[str, ...], Meta(description="One of these must be in a token's `aud`.")] = ()
    algorithms: Annotated[tuple[Algorithm, ...], Meta(description="Signatures that are accepted.")] = (
        "RS256",
        "ES256",
        "EdDSA",
    )
    leeway_seconds: Annotated[
        float, Meta(ge=0, le=600, description="How far the provider's clock may be from this one.")
    ] = 30.0
    subject_claim: Annotated[str, Meta(description="The claim that is the user's id.")] = "sub"
    scopes_claim: Annotated[str, Meta(description="The claim with the scopes, in one text or a list.")] = "scope"
    apps_claim: Annotated[
        str, Meta(description="The claim with the apps the token is limited to; without it, all apps.")
    ] = "apps"
    default_scopes: Annotated[
        tuple[Literal["run", "read", "manage", "debug"], ...],
        Meta(description="Scopes of a token that has none of ours."),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AuthSettings:
    """Who may call. Without keys and tokens, everybody may do everything."""

    keys: Annotated[
        str | None,
        Meta(
            description="The file of API keys, made by `greenroom keys create`. Whoever calls then needs one.",
            extra={"flag": "--keys", "default": "`DIR/.greenroom/keys.db`, if it is there"},
        ),
    ] = None
    tokens: TokenSettings = field(default_factory=TokenSettings)

    @property
    def is_on(self) -> bool:
        return self.keys is not None or self.tokens.jwks_url is not None


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """What a caller may take. Runs, requests and storage are not limited by default."""

    runs_per_user: Annotated[
        Count | None, Meta(description="Runs of one user at once, in all apps; those that wait for their turn count.")
    ] = None
    runs_per_app: Annotated[Count | None, Meta(description="Runs of one app at once.")] = None
    runs_per_server: Annotated[Count | None, Meta(description="Runs at once.")] = None
    requests_per_second: Annotated[
        Rate | None,
        Meta(
            description="Requests in the long run, for each API key or user; without authentication, for each address."
        ),
    ] = None
    requests_at_once: Annotated[
        int, Meta(ge=1, description="Requests that may come together before that pace is kept to.")
    ] = 20
    artifact_bytes: Annotated[
        Count | None, Meta(description="The largest artifact, whether a request or a tool saves it.")
    ] = None
    request_items: Annotated[
        int, Meta(ge=1, description="Parts, calls, keys and other items in the JSON of one request; 422 beyond.")
    ] = 20_000
    request_nesting: Annotated[
        int, Meta(ge=1, description="Levels of nesting in the JSON of one request; 422 beyond.")
    ] = 100
    events_per_session: Annotated[
        Count | None,
        Meta(description="Events of a session, after which it takes no further run. A run that has begun goes on."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What `create_app` can be told."""

    auth: AuthSettings = field(default_factory=AuthSettings)
    cors: CorsSettings = field(default_factory=CorsSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="The names in `Host` by which the server may be called. On a loopback address: the names of "
            "this machine, so that another site's name can't be led here; elsewhere: any.",
            extra={"flag": "--allow-hosts", "default": "see left"},
        ),
    ] = ()
    on_disconnect: Annotated[
        OnDisconnect,
        Meta(
            description="Whether a run goes on when the client that started it goes away, unless its request says "
            "otherwise."
        ),
    ] = "continue"
    max_body_bytes: Annotated[int, Meta(ge=1, description="The largest body of a request.")] = 64 * 1024 * 1024
    keep_alive_seconds: Annotated[
        Seconds, Meta(description="How long a stream may be silent before a comment is sent.")
    ] = 15.0
    run_deadline_seconds: Annotated[
        Seconds | None, Meta(description="How long a run may take, unless its request says less.")
    ] = None
    grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="How long runs may go on when the server is told to stop; what is then unfinished is resumed "
            "at the next start.",
        ),
    ] = 5.0
    traced_content: Annotated[
        TracedContent | None,
        Meta(
            description="Who sees what was said, in traces: nobody, the debug endpoints, or whoever the traces are "
            "exported to as well.",
            extra={
                "default": "`ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS`: true for everywhere, false for nowhere; else debug"
            },
        ),
    ] = None
    max_llm_calls: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Model calls in one run; 0 for no limit. Apps and requests can only lower it.",
            extra={"default": "`ADK_MAX_LLM_CALLS`; else 500"},
        ),
    ] = None
    auto_create_session: Annotated[
        bool, Meta(description="Whether a run opens the session it names when there is none.")
    ] = False
    default_model: Annotated[
        str | None,
        Meta(
            description="The model of agents that have none, in apps without a `default_model` of their own.",
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
            extra={"default": "`ADK_DEFAULT_APP_NAME`; without it, the only app that the caller reaches"},
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What `greenroom serve` can be told."""

    host: Annotated[str, Meta(description="The address to listen on. `0.0.0.0` lets other machines in.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on; 0 takes any free one.")] = 8000
    session_service: Annotated[
        str | None,
        Meta(
            description="Where conversations are kept: `sqlite:///file.db` or `memory://`.",
            extra={"default": "`DIR/.greenroom/greenroom.db`"},
        ),
    ] = None
    artifact_service: Annotated[
        str | None,
        Meta(
            description="Where files are kept: `file:///folder`, `s3://bucket`, `gs://bucket`, `az://container` or "
            "`memory://`.",
            extra={"default": "`DIR/.greenroom/artifacts`"},
        ),
    ] = None
    memory_service: Annotated[str, Meta(description="Where long-term memories are kept.")] = "memory://"
    allow_anonymous: Annotated[
        bool, Meta(description="Whether other machines may be let in without keys or tokens.")
    ] = False
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
            description="Whether apps are loaded anew when their files change. Runs that have begun keep the app they "
            "began with."
        ),
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="What is logged to the standard error.")
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="Whether log lines are for people, or one JSON object each, with the run and its session."),
    ] = "text"
    idle_connection_seconds: Annotated[
        Seconds,
        Meta(description="How long a connection stays open between two requests; longer than most clients' pools."),
    ] = 75.0
    server: Annotated[ServerSettings, Meta(extra={"inline": True})] = field(default_factory=ServerSettings)


OTHER_VARIABLES = {
    "GREENROOM_DEBUG": "Show the tracebacks of errors, and all log messages; as `--debug` does.",
    "GREENROOM_CONFIG": "The configuration file; as `--config` does.",
    "GREENROOM_URL": "The server that `greenroom run` and `greenroom sessions` ask; as `--url` does.",
    "GREENROOM_API_KEY": "The key for that server; as `--api-key` does, which others can read.",
    "GREENROOM_CACHE_DIR": "Where local models are kept, instead of in the user's cache folder.",
}
"""Variables that are read elsewhere, before there are settings or without a server."""
