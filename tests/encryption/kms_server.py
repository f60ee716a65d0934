"""A server with the part of Cloud KMS's REST interface that greenroom uses, on real AES-GCM.

Source: https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from greenroom.encryption.aes import decrypt, encrypt

KEY_NAME = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"


class KmsServer:
    """Has one key with versions; calls need the token."""

    def __init__(self) -> None:
        self.versions: list[bytes] = []
        self.token = "token-1"
        self.calls: list[str] = []
        self.url = ""
        self.add_version()

    def add_version(self) -> None:
        """Adds a primary version."""
        self.versions.append(os.urandom(32))

    def disable(self, number: int) -> None:
        self.versions[number - 1] = b""

    @property
    def primary(self) -> str:
        return f"{KEY_NAME}/cryptoKeyVersions/{len(self.versions)}"

    def answer(self, path: str, body: dict[str, str]) -> tuple[int, dict[str, Any]]:
        name, _, method = path.removeprefix("/v1/").partition(":")
        self.calls.append(method or "get")
        if name != KEY_NAME:
            return _error(404, "NOT_FOUND", f"CryptoKey {name} not found.")
        if method == "":
            return 200, {"name": name, "purpose": "ENCRYPT_DECRYPT", "primary": {"name": self.primary}}

        associated = base64.b64decode(body.get("additionalAuthenticatedData", ""))
        if method == "encrypt":
            number = len(self.versions)
            sealed = encrypt(self.versions[-1], base64.b64decode(body["plaintext"]), associated)
            return 200, {"name": self.primary, "ciphertext": base64.b64encode(bytes([number]) + sealed).decode()}

        data = base64.b64decode(body["ciphertext"])
        version = self.versions[data[0] - 1]
        if not version:
            return _error(400, "FAILED_PRECONDITION", f"{KEY_NAME}/cryptoKeyVersions/{data[0]} is not enabled.")
        plaintext = decrypt(version, data[1:], associated)
        if plaintext is None:
            return _error(400, "INVALID_ARGUMENT", "Decryption failed: the ciphertext is invalid.")
        return 200, {"plaintext": base64.b64encode(plaintext).decode(), "usedPrimary": data[0] == len(self.versions)}


def _error(code: int, status: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"error": {"code": code, "message": message, "status": status}}


@contextmanager
def kms_server() -> Generator[KmsServer]:
    kms = KmsServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, str]) -> None:
            if self.headers["Authorization"] == f"Bearer {kms.token}":
                code, reply = kms.answer(self.path, body)
            else:
                code, reply = _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
            data = json.dumps(reply).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            kms.url = f"http://127.0.0.1:{server.server_address[1]}"
            yield kms
        finally:
            server.shutdown()
            thread.join()
