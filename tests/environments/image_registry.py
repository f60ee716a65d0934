"""An image registry on loopback, as far as pulling needs one."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@contextmanager
def running_registry(folder: Path) -> Generator[str]:
    """Its address. Every name and tag is the image in the folder, which `podman save --format oci-dir` writes."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Prints nothing."""

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            kind, _, reference = self.path.removeprefix("/v2/").rpartition("/")
            body = b""
            headers: dict[str, str] = {}
            if kind.endswith(("/manifests", "/blobs")):
                if not reference.startswith("sha256:"):
                    reference = json.loads((folder / "index.json").read_text())["manifests"][0]["digest"]
                body = (folder / "blobs" / reference.replace(":", "/")).read_bytes()
                is_manifest = kind.endswith("/manifests")
                headers["Content-Type"] = _MANIFEST if is_manifest else "application/octet-stream"
                headers["Docker-Content-Digest"] = reference

            self.send_response(HTTPStatus.OK)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()
