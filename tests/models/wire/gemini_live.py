"""Gemini's Live API. Source: https://ai.google.dev/api/live"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.oauth2.credentials import Credentials

from greenroom.models.gemini.llm import Gemini
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing import Hears, Says
from greenroom.testing.scripted_live_model import CHUNK, LiveItem
from greenroom.testing.scripted_model import words
from tests.models.wire.live import Conversation, Json, LiveServer

AUDIO = {"mimeType": "audio/pcm;rate=24000", "data": base64.b64encode(CHUNK).decode()}


class GeminiLiveServer(LiveServer):
    """Its client always takes TLS."""

    def __init__(self) -> None:
        super().__init__(tls=_certificate())
        self.setups: list[Json] = []

    def model(self, name: str = "gemini-live-2.5-flash-preview", **options: Any) -> Gemini:
        return Gemini(name, api_key=self.secret, client_kwargs={"http_options": self.http_options()}, **options)

    def on_vertex(self, name: str) -> Gemini:
        credentials: Any = Credentials(self.secret)  # type: ignore[no-untyped-call]
        options = {"http_options": self.http_options()}
        return Gemini(
            name, vertexai=True, project="desk", location="eu", credentials=credentials, client_kwargs=options
        )

    def http_options(self) -> Json:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        tls = {"ssl": trusting, "verify": False}
        return {"base_url": f"https://{self.address}", "client_args": {"verify": False}, "async_client_args": tls}

    async def send_away(self, connection: Conversation) -> None:
        await connection.send(
            {"sessionResumptionUpdate": {"newHandle": "h-1", "resumable": True}}, {"goAway": {"timeLeft": "10s"}}
        )

    async def begin(self, connection: Conversation) -> None:
        setup = json.loads(await connection.socket.recv())["setup"]
        self.setups.append(setup)
        await connection.send({"setupComplete": {"sessionId": f"s-{len(self.connections)}"}})
        if setup.get("sessionResumption", {}).get("handle") and self._turns and len(self.connections) > 1:
            connection.asked.put_nowait(None)  # what was left of a turn

    async def take(self, connection: Conversation, message: Json) -> bool:
        if "client_content" in message:
            content = message["client_content"]
            history = self.setups[-1].get("historyConfig") and len(connection.seen) == 1
            return bool(content.get("turnComplete", content.get("turn_complete"))) and not history
        data = message.get("realtime_input", {})
        ends = ("text", "activityEnd", "audioStreamEnd")
        return "tool_response" in message or any(name in data for name in ends)

    def opening(self) -> list[Json]:
        return []

    def ending(self, last: LiveItem | None) -> list[Json]:
        if isinstance(last, FunctionCall):
            return []
        if isinstance(last, LlmResponse) and (last.turn_complete or last.go_away):
            return []
        name = "candidatesTokenCount" if "aiplatform" in self.paths[-1] else "responseTokenCount"
        usage = {"promptTokenCount": 10, name: 5, "totalTokenCount": 15}
        return [{"serverContent": {"turnComplete": True}, "usageMetadata": usage}]

    def frames(self, item: LiveItem) -> Iterator[Json]:
        if isinstance(item, str):
            for word in words(item):
                yield {"serverContent": {"modelTurn": {"parts": [{"text": word}]}}}
            yield {"serverContent": {"generationComplete": True}}
        elif isinstance(item, Says):
            for word in words(item.text):
                yield {"serverContent": {"modelTurn": {"parts": [{"inlineData": AUDIO}]}}}
                yield {"serverContent": {"outputTranscription": {"text": word}}}
        elif isinstance(item, Hears):
            for word in words(item.text):
                yield {"serverContent": {"inputTranscription": {"text": word}}}
        elif isinstance(item, FunctionCall):
            yield {"toolCall": {"functionCalls": [{"id": item.id, "name": item.name, "args": item.args or {}}]}}
        else:
            assert isinstance(item, LlmResponse)
            plain = item.model_dump(mode="json", by_alias=True, exclude_none=True)
            update = plain.pop("liveSessionResumptionUpdate", None)
            if update is not None:
                yield {"sessionResumptionUpdate": update}
            elif "goAway" in plain:
                yield plain
            else:
                yield {"serverContent": plain}


@cache
def _certificate() -> ssl.SSLContext:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        file = Path(folder, "server.pem")
        file.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(file)
    return context
