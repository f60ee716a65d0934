"""What ADK's web page asks for: its configuration, and an editor of agents that this server does not have."""

from __future__ import annotations

from greenroom.errors import CallerError, NotOffered
from greenroom.records.base import Record
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

_CONSENT_HEADER = "x-adk-telemetry-request"


class TelemetryConsent(Record, kw_only=True, omit_defaults=False):
    """Whether the page reports its use. Nothing here does."""

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
    """Consent is taken note of, and nothing is reported all the same. The header keeps other sites' forms out."""
    if context.headers.get(_CONSENT_HEADER) != "true":
        raise CallerError("The header X-ADK-Telemetry-Request: true is missing")
    return Reply(value=TelemetryConsent(telemetry=False))


async def get_logo(context: RequestContext) -> AnyReply:
    return Reply(value=LogoConfig())


async def get_runtime_config(context: RequestContext) -> AnyReply:
    return Reply(value=RuntimeConfig(), headers={"cache-control": "no-store"})


async def finalize_identity(context: RequestContext) -> AnyReply:
    """The last step of a cloud's own credential scheme, which no tool here uses."""
    raise NotOffered("This server has no agent identities to finalize")


async def get_builder_file(context: RequestContext) -> AnyReply:
    """Nothing: the page then switches its editor off."""
    return Reply(data=b"", media_type="text/plain; charset=utf-8")


async def save_builder_files(context: RequestContext) -> AnyReply:
    raise NotOffered("Agents can't be edited through this server")


async def cancel_builder_draft(context: RequestContext) -> AnyReply:
    """There never is a draft."""
    return Reply(value=True)
