"""Push notifications: the states of a task are posted to the client's webhook.

The body is version 1.0's `StreamResponse` with a status update, and version 0.3's `Task` for
configurations that were made by it; the client reads artifacts with GetTask. The client's token is
sent as `X-A2A-Notification-Token`, and its credentials as `Authorization`; without credentials, and
with the setting `webhook_key`, a token that this server signs.
Source: A2A 1.0, section 4.3; a2a-sdk 1.3, `server/tasks/base_push_notification_sender`; for the
signed token the webhooks of A2A's samples, which take the keys from `/.well-known/jwks.json` and
compare `request_body_sha256`.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import a2a.types as a2a
import httpx
from a2a.compat.v0_3.conversions import to_compat_task
from a2a.server.tasks.push_notification_config_store import normalize_push_notification_config
from google.protobuf.json_format import MessageToDict, ParseDict

from greenroom.errors import AgentConfigError, InvalidRequest, MissingExtra, NotFound
from greenroom.gates.a2a.task_events import read_run, to_task
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.run import PushConfig, Run, RunStatus
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext
from greenroom.server.server_state import ServerState
from greenroom.tools.web.address_guard import AddressRefused, GuardedTransport, check_host

TIMEOUT_SECONDS = 10.0
MAX_LENGTH = 4096
SIGNED_SECONDS = 300


def check(context: RequestContext, config: a2a.TaskPushNotificationConfig) -> None:
    """Raises InvalidRequest for a URL that must not be called, and for values that can't be a header."""
    auth = config.authentication
    for name, text in (("id", config.id), ("url", config.url), ("token", config.token),
        ("authentication", f"{auth.scheme} {auth.credentials}")):  # fmt: skip
        if len(text) > MAX_LENGTH or not (text.isascii() and text.isprintable()):
            raise InvalidRequest(f"{name} of a push notification must be printable ASCII, up to {MAX_LENGTH} long")

    try:
        url = httpx.URL(config.url)
        if url.scheme not in ("http", "https") or not url.host:
            raise InvalidRequest("The URL of a push notification must begin with http:// or https://")
        if not context.settings.allow_private_webhooks:
            check_host(url.host)
    except (httpx.InvalidURL, AddressRefused) as error:
        raise InvalidRequest(f"The URL of a push notification can't be called: {error}") from None


async def save(
    context: RequestContext, run: Run, config: a2a.TaskPushNotificationConfig, *, reported: str = ""
) -> a2a.TaskPushNotificationConfig:
    """Stores a configuration, replacing an earlier one with the same id. reported: the state that the client knows.

    Raises InvalidRequest.
    """
    check(context, config)
    config = normalize_push_notification_config(run.id, config)
    version = context.headers.get("a2a-version", "0.3")
    is_over = bool(reported) and run.status.is_over and run.status is not RunStatus.WAITING
    stored: JsonObject = {"version": version, "config": MessageToDict(config), "issuer": context.address.url()}
    stored_config = PushConfig(run_id=run.id, id=config.id, config=stored, reported=reported, is_over=is_over)
    await context.webhooks.save_push_config(stored_config)
    return config


async def list_of(context: RequestContext, run: Run) -> list[a2a.TaskPushNotificationConfig]:
    return [_config_of(stored_config) for stored_config in await context.webhooks.list_push_configs(run.id)]


def _config_of(stored_config: PushConfig) -> a2a.TaskPushNotificationConfig:
    return ParseDict(cast("JsonObject", stored_config.config["config"]), a2a.TaskPushNotificationConfig())


@asynccontextmanager
async def sending(server: ServerState) -> AsyncGenerator[None]:
    """Sends the notifications of all tasks inside the context; redirects are not followed."""
    verify = httpx.create_ssl_context()
    transport = None if server.settings.allow_private_webhooks else GuardedTransport(verify)
    signer: Signer | None = None
    if server.settings.webhook_key is not None:
        signer = Signer.of(server.settings.webhook_key)
    client = httpx.AsyncClient(verify=verify, transport=transport, timeout=TIMEOUT_SECONDS, trust_env=False)

    async def send(run: Run, stored_config: PushConfig) -> None:
        config = _config_of(stored_config)
        headers = {"content-type": "application/json"}
        if config.token:
            headers["x-a2a-notification-token"] = config.token
        body = wire.encode(await _payload(server, run, str(stored_config.config["version"])))
        if config.authentication.scheme and config.authentication.credentials:
            headers["authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
        elif signer is not None:
            issuer = str(stored_config.config.get("issuer", ""))
            headers["authorization"] = f"Bearer {signer.token(issuer, config.url, run.id, body)}"

        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            client.stream("POST", config.url, content=body, headers=headers) as reply,
        ):
            reply.raise_for_status()

    async with client, server.engine.push_notifications.reporting(send):
        yield


async def _payload(server: ServerState, run: Run, version: str) -> JsonObject:
    events, _ = await read_run(server.sessions, run, keeps_artifacts=False)
    if version.startswith("0."):
        task = to_task(events.task(run, history_length=0))
        return to_compat_task(task).model_dump(mode="json", by_alias=True, exclude_none=True)
    return events.status(run)


class Signer:
    """Signs notifications with a private key: EC on P-256, RSA or Ed25519. jwk: its public half, as JWKS has it."""

    @staticmethod
    @lru_cache
    def of(file: str) -> Signer:
        return Signer(file)

    def __init__(self, file: str) -> None:
        """Raises AgentConfigError, MissingExtra."""
        try:
            from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
            from jwt.algorithms import get_default_algorithms
        except ImportError:
            raise MissingExtra("auth", "PyJWT") from None

        kinds = {ec.EllipticCurvePrivateKey: "ES256", rsa.RSAPrivateKey: "RS256", ed25519.Ed25519PrivateKey: "EdDSA"}
        try:
            self._key: Any = load_pem_private_key(Path(file).read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise AgentConfigError(f"webhook_key: {file} holds no private key in PEM: {error}") from None

        self._algorithm = next((name for kind, name in kinds.items() if isinstance(self._key, kind)), "")
        curve = getattr(self._key, "curve", None)
        if not self._algorithm or not (curve is None or isinstance(curve, ec.SECP256R1)):
            raise AgentConfigError(f"webhook_key: the key in {file} must be of EC on P-256, RSA or Ed25519")

        algorithm: Any = get_default_algorithms()[self._algorithm]
        public: JsonObject = algorithm.to_jwk(self._key.public_key(), as_dict=True)
        named = hashlib.sha256(wire.encode(sorted(public.items()))).hexdigest()[:16]
        self.jwk: JsonObject = {**public, "kid": named, "alg": self._algorithm, "use": "sig", "key_ops": ["verify"]}

    def token(self, issuer: str, audience: str, task_id: str, body: bytes) -> str:
        """A JWT with the sender, the receiver and the body's hash, valid for SIGNED_SECONDS."""
        import jwt

        now = int(time.time())
        claims: JsonObject = {
            "iss": issuer,
            "aud": audience,
            "iat": now,
            "exp": now + SIGNED_SECONDS,
            "jti": secrets.token_urlsafe(16),
            "taskId": task_id,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        return jwt.encode(claims, self._key, algorithm=self._algorithm, headers={"kid": self.jwk["kid"]})


async def get_keys(context: RequestContext) -> AnyReply:
    if context.settings.webhook_key is None:
        raise NotFound("This server signs no push notifications")
    return Reply(value={"keys": [Signer.of(context.settings.webhook_key).jwk]})
