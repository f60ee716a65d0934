"""A server with the part of the transit engine of Vault that the example of a key provider uses.

Source: https://developer.hashicorp.com/vault/api-docs/secret/transit
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_VERSION = 3
_TOKEN = "token"


class _Vault(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"latest_version": _VERSION, "type": "aes256-gcm96"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prefix = f"vault:v{_VERSION}:"
        if "/encrypt/" in self.path:
            self._answer({"ciphertext": prefix + body["plaintext"][::-1], "key_version": _VERSION})
        else:
            self._answer({"plaintext": body["ciphertext"].removeprefix(prefix)[::-1]})

    def _answer(self, data: dict[str, object]) -> None:
        is_allowed = self.headers["X-Vault-Token"] == _TOKEN
        body = json.dumps({"data": data} if is_allowed else {"errors": ["permission denied"]}).encode()
        self.send_response(200 if is_allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Prints nothing."""


@contextmanager
def vault_server() -> Generator[str]:
    """Yields its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Vault) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
