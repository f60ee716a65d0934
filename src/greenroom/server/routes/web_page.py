"""Handlers of ADK's web page: its configuration, and its agent editor, which this server does not support."""

from __future__ import annotations

from greenroom.errors import CallerError, NotOffered
from greenroom.records.base import Record
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

_CONSENT_HEADER = "x-adk-telemetry-request"


class TelemetryConsent(Record, kw_only=True, omit_defaults=False):
    """The consent to usage reports. The server sends none."""

    telemetry: bool


class LogoConfig(Record, kw_only=True, omit_defaults=False, rename=None):
    logo_text: str | None = None
    logo_image_url: str | None = None


class RuntimeConfig(Record, kw_only=True, omit_defaults=False):
    """backend_url: empty for the origin that the page came from."""

    backend_url: str = ""
    telemetry: bool = False


class FinalizeIdentityRequest(Record, kw_only=True):
    connector_name: str | None = None
    user_id: str | None = None
    user_id_validation_state: str | None = None
    consent_nonce: str | None = None


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
    return Reply(value=RuntimeConfig(), headers={"cache-control": "no-store"})


async def finalize_identity(context: RequestContext) -> AnyReply:
    """Not supported: the last step of a cloud's own credential scheme."""
    raise NotOffered("This server has no agent identities to finalize")


async def get_builder_file(context: RequestContext) -> AnyReply:
    """Empty, which makes the page switch off its editor."""
    return Reply(data=b"", media_type="text/plain; charset=utf-8")


async def save_builder_files(context: RequestContext) -> AnyReply:
    raise NotOffered("Agents can't be edited through this server")


async def cancel_builder_draft(context: RequestContext) -> AnyReply:
    """Does nothing, since there are no drafts."""
    return Reply(value=True)
