"""The settings of a server: flags, variables, keys of `greenroom.toml` and their documentation are derived from these.

A field's name is its key: `grace_seconds` is `--grace-seconds`, `GREENROOM_GRACE_SECONDS` and `grace_seconds = …`; in a
nested class the outer name comes first: `[cors] max_age`, `--cors-max-age`. A type may have limits: `Seconds`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from greenroom.errors import ConfigurationError
from greenroom.records.run import OnDisconnect
from greenroom.records.service_uri import without_password

T = TypeVar("T")

Seconds = Annotated[float, Meta(gt=0)]
Days = Annotated[float, Meta(gt=0)]
Workers = Annotated[
    Annotated[int, Meta(ge=1)] | Literal["auto"], Meta(description="a whole number, at least 1, or auto")
]
Rate = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]

PREFIX_PATH = r"(?:/?(?!\.\.?(?:/|$))[A-Za-z0-9._~%+@-]+)(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~%+@-]+)*"
"""Segments that mean the same in a URL, in a page and in a cookie's path."""

UrlPrefix = Annotated[
    str,
    Meta(
        pattern=rf"^(?:https?://[A-Za-z0-9._-]+(?::\d+)?|https?://\[[0-9A-Fa-f:.]+\](?::\d+)?)?(?:{PREFIX_PATH})?/?$",
        description="a path or a URL, such as `/agents`",
    ),
]
ProxyAddress = Annotated[
    str, Meta(pattern=r"^(?:\*|[0-9A-Fa-f:.]+(?:/\d{1,3})?)$", description="an IP address, a network or `*`")
]

RunWeight = Annotated[
    str,
    Meta(
        pattern=r"^(?:app|user):.+=(?=[0-9.]*[1-9])[0-9]{1,6}(?:\.[0-9]{1,6})?$",
        description="`app:NAME=WEIGHT` or `user:ID=WEIGHT`",
    ),
]

TracedContent = Literal["nowhere", "debug", "everywhere"]


def setting(default: T, description: str, *, flag: str | None = None, default_words: str | None = None) -> T:
    """Declares a field of a settings class.

    flag: the flag, if it isn't the one that follows from the key. default_words: describes a default that is no value.
    """
    return field(default=default, metadata={"description": description, "flag": flag, "default_words": default_words})


class _Checked:
    """Base of settings classes: checks the fields. Other sequences become tuples, and paths become text.

    Raises ConfigurationError for values of other types and beyond the limits.
    """

    def __post_init__(self) -> None:
        faults: list[str] = []
        for name, kind in field_types(type(self)).items():
            value: object = getattr(self, name)
            if isinstance(value, Path):
                value = str(value)

            try:
                converted = msgspec.convert(value, kind)
            except msgspec.ValidationError:
                faults.append(f"{name} must be {in_words(kind)}, not {without_password(repr(value))}")
            else:
                object.__setattr__(self, name, converted)

        if faults:
            raise ConfigurationError([f"{type(self).__name__}: {fault}" for fault in faults])


@cache
def field_types(kind: type[Any]) -> dict[str, Any]:
    """Returns the types of a settings class's fields, with their limits."""
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: hints[each.name] for each in fields(kind)}


def in_words(kind: Any) -> str:
    """Describes the valid values of a type."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        limits: Meta = arguments[1]
        return limits.description or in_words(arguments[0]) + _limits(limits)
    if origin is Literal:
        return f"{', '.join(arguments[:-1])} or {arguments[-1]}"
    if origin is tuple:
        return f"a list (each item: {in_words(arguments[0])})"
    if arguments:  # or None
        return in_words(arguments[0])
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return words.get(kind) or f"of the type {kind.__name__}"


def _limits(limits: Meta) -> str:
    if limits.le is not None:
        return f" from {limits.ge:g} to {limits.le:g}"
    if limits.gt is not None:
        return f" above {limits.gt:g}"
    return f", at least {limits.ge:g}"


@dataclass(frozen=True, kw_only=True)
class CorsSettings(_Checked):
    """Cross-origin access, with ADK's property names. With empty `origins`, only the server's own pages have access."""

    mapping: str = setting("/", "The prefix of the paths that other origins may call.")
    origins: tuple[str, ...] = setting(
        (),
        "Origins of other web pages that may call this server: `https://example.com`, "
        "`regex:https://.*\\.example\\.com` or `*`.",
        flag="--allow-origins",
    )
    methods: tuple[str, ...] = setting(
        ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), "HTTP methods that other origins may use."
    )
    headers: tuple[str, ...] = setting(("*",), "Headers that other origins may send.")
    allow_credentials: bool = setting(True, "Whether other origins may send cookies and other credentials.")
    max_age: CountOrZero = setting(3600, "Seconds for which a browser may cache a preflight response.")


Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
"""Signature algorithms with public keys. Shared secrets and `none` are not allowed."""


@dataclass(frozen=True, kw_only=True)
class TokenSettings(_Checked):
    """Tokens (JWT) of an identity provider."""

    jwks_url: str | None = setting(
        None, "The URL of the provider's public keys (JWKS). If it is set, tokens are accepted."
    )
    issuer: str | None = setting(None, "The required `iss` claim of a token.")
    audiences: tuple[str, ...] = setting((), "Accepted audiences: the `aud` claim of a token must contain one of them.")
    algorithms: tuple[Algorithm, ...] = setting(("RS256", "ES256", "EdDSA"), "Accepted signature algorithms.")
    leeway_seconds: Annotated[float, Meta(ge=0, le=600)] = setting(
        30.0, "Accepted difference in seconds between the provider's clock and this one."
    )
    subject_claim: str = setting("sub", "The claim with the user's ID.")
    scopes_claim: str = setting("scope", "The claim with the scopes: a list, or text separated by spaces.")
    roles_claim: str | None = setting(
        None, "The claim with names of roles: a list, or text separated by spaces. Without it, tokens have no roles."
    )
    apps_claim: str = setting(
        "apps", "The claim with the apps that the token may access. A token without it may access all apps."
    )
    default_scopes: tuple[Literal["run", "read", "manage", "debug", "audit"], ...] = setting(
        (), "The scopes of a token that has none of greenroom's scopes, and no roles."
    )


@dataclass(frozen=True, kw_only=True)
class AuthSettings(_Checked):
    """Authentication. Without keys and tokens, every caller may do everything."""

    keys: str | None = setting(
        None,
        "The API keys, created by `greenroom keys create`: a file, or `postgresql://host/database`, where several "
        "servers share them. If it is set, callers need a key.",
        flag="--keys",
        default_words="`DIR/.greenroom/keys.db`, if it exists",
    )
    tokens: TokenSettings = TokenSettings()

    @property
    def is_on(self) -> bool:
        return self.keys is not None or self.tokens.jwks_url is not None


@dataclass(frozen=True, kw_only=True)
class AuditSettings(_Checked):
    """The audit trail."""

    key: str | None = setting(
        None,
        "A file with the private key (PEM: Ed25519) that signs the audit trail, made by `greenroom audit keygen`. If "
        "it is set, the server keeps an audit trail, in the database of the sessions.",
    )
    sign_seconds: Seconds = setting(
        60.0, "Interval in seconds at which the audit trail is signed, if there are new entries."
    )


@dataclass(frozen=True, kw_only=True)
class EncryptionSettings(_Checked):
    """Encryption at rest."""

    keys: str | None = setting(
        None,
        "The keys that encrypt what is stored: `file:///path/keys.toml`, made by `greenroom encryption keygen`, "
        "`env://NAME`, `google-kms://projects/…/cryptoKeys/KEY`, or `python://module:name` for a key provider of your "
        "own.",
    )


@dataclass(frozen=True, kw_only=True)
class StatisticsSettings(_Checked):
    """Statistics of runs over time."""

    enabled: bool = setting(True, "Whether the server counts what runs do, for `GET /statistics` and the dashboard.")
    minute_days: Days = setting(14.0, "Days for which figures of each minute are kept. Longer steps stay.")
    hour_days: Days = setting(400.0, "Days for which figures of each hour are kept.")
    day_days: Days = setting(3650.0, "Days for which figures of each day are kept, and those of users.")


@dataclass(frozen=True, kw_only=True)
class LimitSettings(_Checked):
    """Limits of callers. Runs, requests and storage are unlimited by default."""

    runs_per_user: Count | None = setting(None, "Concurrent runs of one user in all apps, including queued ones.")
    runs_per_app: Count | None = setting(None, "Concurrent runs of one app.")
    runs_per_server: Count | None = setting(None, "Concurrent runs of the server.")
    max_running_runs: Count | None = setting(
        None,
        "Runs that the server executes at a time. The others wait, and start by priority and in fair shares of the "
        "users of each app.",
    )
    run_weights: tuple[RunWeight, ...] = setting(
        (), "Shares of apps and users in these runs, 1 by default: `app:desk=2`, `user:ann=0.5`."
    )
    requests_per_second: Rate | None = setting(
        None, "Average request rate of each API key or user, or without authentication of each client address."
    )
    requests_at_once: Count = setting(
        20, "Burst size: the number of requests that may arrive at once before that rate applies."
    )
    artifact_bytes: Count = setting(5_000_000_000, "Maximum size of an artifact that a request or a tool saves.")
    request_items: Count = setting(
        20_000,
        "Maximum number of parts, calls, keys and other items in the JSON of a request. More are refused with 422.",
    )
    request_nesting: Count = setting(100, "Maximum nesting of the JSON of a request. More levels are refused with 422.")
    eval_results: Count = setting(
        100, "Number of evaluation results to keep for each app. An evaluation over HTTP deletes older ones."
    )
    eval_result_bytes: Count = setting(
        16 * 1024 * 1024,
        "Maximum size of a stored result of an evaluation over HTTP. A larger one is stored without the sessions of "
        "its cases. If it is still too large, it is returned but not stored.",
    )
    events_per_session: Count | None = setting(
        None, "Number of events after which a session accepts no new runs. Runs in progress continue."
    )
    schedules_per_user: Count = setting(100, "Schedules of one user in one app, besides those that the app declares.")
    schedules_per_app: Count = setting(
        10_000, "Schedules of all users in one app, besides those that the app declares."
    )


GateName = Literal["a2a", "ag_ui", "agent_engine", "mcp", "openai", "triggers"]


@dataclass(frozen=True, kw_only=True)
class ServerSettings(_Checked):
    """The settings of `create_app`."""

    auth: AuthSettings = AuthSettings()
    cors: CorsSettings = CorsSettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    statistics: StatisticsSettings = StatisticsSettings()
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Accepted values of the `Host` header. The default prevents DNS rebinding.",
        flag="--allow-hosts",
        default_words="the names of this machine on a loopback address; otherwise any",
    )
    url_prefix: UrlPrefix | None = setting(
        None,
        "The path at which clients reach the server: `/agents` for `https://example.com/agents/`. A proxy may "
        "remove it from requests or not. A full URL also sets the scheme and the host.",
        default_words="`X-Forwarded-Prefix` of a trusted proxy; otherwise none",
    )
    trusted_proxies: tuple[ProxyAddress, ...] = setting(
        ("127.0.0.1", "::1"),
        "Proxies whose `X-Forwarded-…` and `Forwarded` headers are trusted: IP addresses, networks such as "
        "`10.0.0.0/8`, or `*` for all.",
    )
    on_disconnect: OnDisconnect = setting(
        "continue",
        "Whether a run continues or is cancelled when the client that started it disconnects. Requests can override "
        "this.",
    )
    max_body_bytes: Count = setting(64 * 1024 * 1024, "Maximum size of a request body.")
    keep_alive_seconds: Seconds = setting(
        15.0, "Seconds without events after which a stream sends a comment, to keep the connection open."
    )
    run_deadline_seconds: Seconds | None = setting(
        None, "Time limit of a run in seconds, also of live runs. Requests can lower it."
    )
    grace_seconds: Annotated[float, Meta(ge=0)] = setting(
        5.0,
        "Seconds that runs may continue after a stop signal. Unfinished runs resume at the next start.",
    )
    traced_content: TracedContent | None = setting(
        None,
        "Where traces include the content of messages: `nowhere`, in the `debug` endpoints, or `everywhere`, which "
        "adds exported traces.",
        default_words="`ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS` (true: everywhere, false: nowhere); otherwise debug",
    )
    max_llm_calls: CountOrZero | None = setting(
        None,
        "Maximum number of model calls in a run; 0 means no limit. Apps and requests can only lower it.",
        default_words="`ADK_MAX_LLM_CALLS`; otherwise 500",
    )
    session_ttl_seconds: Seconds | None = setting(
        None,
        "Seconds without an update after which sessions are deleted, with all that belongs to them, in apps that set "
        "no `session_ttl_seconds`.",
    )
    auto_create_session: bool = setting(False, "Whether a run creates its session if it doesn't exist.")
    default_model: str | None = setting(
        None,
        "The model of agents that name none, in apps without a `default_model`.",
        default_words="ADK's `gemini-3.5-flash` if its key is set; otherwise `local/smollm2-135m`",
    )
    prices: str | None = setting(
        None,
        "A TOML file with prices of models, for the cost of runs and for budgets. They take precedence over the "
        "default prices.",
        default_words="list prices of 2025 in US dollars",
    )
    allow_unknown_apps: bool = setting(
        False, "Whether sessions and artifacts may be stored for apps that aren't served, as in ADK."
    )
    gates: tuple[GateName, ...] = setting(
        (),
        "Additional protocols: `a2a` for A2A at `/a2a/{app_name}`, `ag_ui` for AG-UI at `/ag-ui/{app_name}`, "
        "`agent_engine` for Vertex AI Agent Engine's `/api/reasoning_engine`, `mcp` for the Model Context Protocol at "
        "`/mcp` and `/mcp/{app_name}`, `openai` for OpenAI's Chat Completions and Responses at `/v1`, `triggers` for "
        "messages of Pub/Sub and Eventarc at `/apps/{app_name}/trigger`.",
    )
    a2a_grpc: str | None = setting(
        None, "An address such as `127.0.0.1:50051`, at which the gate `a2a` also serves gRPC, without TLS."
    )
    allow_private_webhooks: bool = setting(
        False,
        "Whether webhooks and push notifications may be sent to private addresses, such as this machine and others in "
        "its network.",
    )
    webhook_secrets: str | None = setting(
        None,
        "A TOML file with the secrets that sign messages to webhooks and the links of agents, by app. It is read again "
        "when it changes.",
    )
    public_url: str | None = setting(
        None,
        "The URL at which clients reach the server, such as `https://agents.example.com`. The links that agents hand "
        "out (`signal_url`) begin with it.",
    )
    webhook_key: str | None = setting(
        None,
        "A file with a private key (PEM: EC on P-256, RSA or Ed25519) that signs push notifications of A2A. Receivers "
        "get the public key from `/.well-known/jwks.json`.",
    )
    edit: bool = setting(
        False, "Whether callers with the scope `manage` may edit the YAML files of agents and create new ones."
    )
    default_app: str | None = setting(
        None,
        "The app of requests that name none: `/users/…`, `/app-info`, and runs without `appName`.",
        default_words="`ADK_DEFAULT_APP_NAME`; otherwise the only app that the caller may access",
    )

    replica_address: str | None = setting(
        None,
        "The URL at which other servers on the same PostgreSQL database reach this one, as `http://10.0.0.5:8000`. "
        "They forward requests to the server that runs the session. With several workers, each listens on a port of "
        "its own: on this one and those after it, or without a port on any free one.",
        default_words="`greenroom serve`: `host` and `port`; otherwise none, and the database has one server",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_url is not None and not re.fullmatch(r"https?://[^/?#\s]+[^?#\s]*", self.public_url):
            raise ConfigurationError([f"public_url must be an http or https URL, not {self.public_url!r}"])
        for proxy in self.trusted_proxies:
            if proxy == "*":
                continue
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError:
                fault = f"trusted_proxies must not contain {proxy!r}: it isn't an IP address"
                raise ConfigurationError([fault]) from None


@dataclass(frozen=True, kw_only=True)
class ServeSettings(ServerSettings):
    """The settings of `greenroom serve`."""

    host: str = setting("127.0.0.1", "The address to listen on. `0.0.0.0` accepts connections from other machines.")
    port: Annotated[int, Meta(ge=0, le=65535)] = setting(8000, "The port to listen on; 0 means any free port.")
    workers: Workers = setting(
        1,
        "The number of processes that serve the port, if sessions are stored in PostgreSQL. `auto` means the number of "
        "CPUs that the server may use.",
    )
    session_service: str | None = setting(
        None,
        "The session store: `sqlite:///file.db`, `postgresql://host/database`, `firestore://project/database`, "
        "`agentengine://ID` or `memory://`.",
        default_words="`DIR/.greenroom/greenroom.db`",
    )
    artifact_service: str | None = setting(
        None,
        "The artifact store: `file:///folder`, `s3://bucket`, `gs://bucket`, `az://container` or `memory://`.",
        default_words="`DIR/.greenroom/artifacts`",
    )
    memory_service: str | None = setting(
        None,
        "The store of long-term memory: `sqlite:///file.db`, `postgresql://host/database` or `memory://`.",
        default_words="the session store",
    )
    memory_embeddings: str | None = setting(
        None,
        "The embedding model for memory search by meaning, in SQLite and PostgreSQL: `openai/MODEL`, `gemini/MODEL`, "
        "`local/MODEL` or `local/FILE.gguf`.",
    )
    allow_anonymous: bool = setting(False, "Whether other machines may connect without keys or tokens.")
    build_output_dirs: tuple[str, ...] = setting(
        (),
        "Serve built apps instead of those in the folder: names of output folders with packages, wheels or zip "
        "archives, which are searched in `source_dir` and in its direct subfolders.",
        default_words="`dist`, `build/lib`, `build` if `source_dir` is set",
    )
    source_dir: str | None = setting(None, "The folder of the built apps.", default_words="`DIR`")
    reload: bool = setting(
        True, "Whether apps are reloaded when their files change. Runs in progress keep the version they started with."
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The minimum level of log messages on standard error."
    )
    log_format: Literal["text", "json"] = setting(
        "text", "The format of log messages: text, or one JSON object per line, with the run and its session."
    )
    idle_connection_seconds: Seconds = setting(
        75.0, "Seconds after which an idle connection is closed. Longer than in the connection pools of most clients."
    )


OTHER_VARIABLES = {
    "GREENROOM_DEBUG": "Show tracebacks of errors and all log messages, like `--debug`.",
    "GREENROOM_CONFIG": "The configuration file, like `--config`.",
    "GREENROOM_URL": "The server of `greenroom run`, `greenroom sessions` and `greenroom schedules`, like `--url`.",
    "GREENROOM_API_KEY": "The API key for that server. Safer than `--api-key`, which other users can see.",
    "GREENROOM_MCP_START_SECONDS": "Seconds in which the process of an MCP server must start. Default: 60.",
    "GREENROOM_CACHE_DIR": "The folder of what is downloaded: local models, Pyodide. Default: the user's cache folder.",
}
"""Variables that are no settings: they are read before the settings, or without a server."""
