"""Handlers of the dev UI's files, and of ADK's web page: its configuration, and its agent editor,
which this server does not support."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

from greenroom.errors import CallerError, NotOffered
from greenroom.records.base import Record
from greenroom.server.replies import AnyReply, Reply, status_reply
from greenroom.server.request_context import RequestContext

_BUILT = Path(__file__).parents[1] / "dev_ui"
_PAGE = "index.html"
_REFERENCE = "docs.html"
_NOT_BUILT = b"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>greenroom</title><h1>Not built</h1>
<p>The dev UI and the API reference are not built: run <code>make ui</code>, with an internet connection.</p>
<p>The interface as an OpenAPI document is at <a href="%(prefix)b/openapi.json">%(prefix)b/openapi.json</a>.</p>
"""
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}
_CONTENT_SECURITY_POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval'",  # graphs are drawn by WebAssembly
    "style-src 'self' 'unsafe-inline'",  # the JSON editor makes style elements
    "connect-src 'self'",
    "img-src 'self' data: blob:",
    "media-src 'self' data: blob:",
    "worker-src 'self' blob:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
))  # fmt: skip
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "permissions-policy": "camera=(self), microphone=(self), display-capture=(), geolocation=()",
    "referrer-policy": "no-referrer",
}
_ASSET_HEADERS = {"cache-control": "public, max-age=31536000, immutable"}

_CONSENT_HEADER = "x-adk-telemetry-request"


class TelemetryConsent(Record, kw_only=True, omit_defaults=False):
    """The consent to usage reports. The server sends none."""

    telemetry: bool
    """Whether the user consents."""


class LogoConfig(Record, kw_only=True, omit_defaults=False, rename=None):
    """The logo of ADK's web page."""

    logo_text: str | None = None
    """Shown beside the logo."""
    logo_image_url: str | None = None
    """The logo's URL."""


class RuntimeConfig(Record, kw_only=True, omit_defaults=False):
    """The configuration of ADK's web page."""

    backend_url: str = ""
    """The server's URL, if it isn't the root of the origin that the page came from."""
    telemetry: bool = False
    """Whether the page sends usage reports."""
    edit: bool = False
    """Whether agents' files may be edited."""


class FinalizeIdentityRequest(Record, kw_only=True):
    """The end of a login through an identity connector."""

    connector_name: str | None = None
    """The connector of the login."""
    user_id: str | None = None
    """The user who logged in."""
    user_id_validation_state: str | None = None
    """The state that the provider returned."""
    consent_nonce: str | None = None
    """The nonce of the consent."""


async def dev_ui(context: RequestContext) -> AnyReply:
    """A built file of the dev UI, compressed as the client accepts. Paths of no file are addresses
    of its pages and get the page, except under `assets/`, where names contain a hash of the content."""
    return _built(context.path["file"], context)


async def docs_page(context: RequestContext) -> AnyReply:
    return _built(_REFERENCE, context)


def _built(name: str, context: RequestContext) -> Reply:
    prefix = context.address.prefix.encode()
    try:
        files = _files((_BUILT / _PAGE).stat().st_mtime_ns)
    except FileNotFoundError:
        page = _NOT_BUILT % {b"prefix": prefix}
        return Reply(data=page, media_type=_MEDIA_TYPES[".html"], headers={"cache-control": "no-cache"})

    is_asset = name.startswith("assets/")
    if name not in files:
        if is_asset:
            return status_reply(HTTPStatus.NOT_FOUND)
        name = _PAGE

    headers = {"vary": "accept-encoding", "x-content-type-options": "nosniff"}
    headers |= _ASSET_HEADERS if is_asset else _PAGE_HEADERS
    data = files[name]
    media_type = _MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream")
    if prefix and name.endswith(".html"):  # scripts and styles find their files beside themselves
        data = data.replace(b'="/dev-ui/', b'="%b/dev-ui/' % prefix)
        return Reply(data=data, media_type=media_type, headers=headers)

    accepted = context.headers.get("accept-encoding", "").lower().replace(" ", "").split(",")
    for encoding, ending in (("br", ".br"), ("gzip", ".gz")):
        if name + ending in files and encoding in {
            coding.partition(";")[0] for coding in accepted if ";q=0" not in coding[-4:]
        }:
            headers["content-encoding"] = encoding
            data = files[name + ending]
            break

    return Reply(data=data, media_type=media_type, headers=headers)


@lru_cache(maxsize=1)
def _files(built_at: int) -> dict[str, bytes]:
    """The built files by name, a few megabytes. built_at: makes a new build a new entry."""
    return {path.relative_to(_BUILT).as_posix(): path.read_bytes() for path in _BUILT.rglob("*") if path.is_file()}


async def get_telemetry(context: RequestContext) -> AnyReply:
    return Reply(value=TelemetryConsent(telemetry=False))


async def set_telemetry(context: RequestContext) -> AnyReply:
    """Accepts the consent without effect. The required header prevents requests from other sites' forms."""
    if context.headers.get(_CONSENT_HEADER) != "true":
        raise CallerError("The header X-ADK-Telemetry-Request: true is missing")
    return Reply(value=TelemetryConsent(telemetry=False))


async def get_logo(context: RequestContext) -> AnyReply:
    return Reply(value=LogoConfig())


async def get_runtime_config(context: RequestContext) -> AnyReply:
    address = context.address
    # A complete URL: ADK's page derives its WebSocket's URL from it.
    backend_url = address.url() if address.prefix else ""
    config = RuntimeConfig(backend_url=backend_url, edit=context.settings.edit)
    return Reply(value=config, headers={"cache-control": "no-store"})


async def finalize_identity(context: RequestContext) -> AnyReply:
    """Refuses the last step of a cloud's own credential scheme, which isn't supported."""
    raise NotOffered("This server has no agent identities to finalize")
