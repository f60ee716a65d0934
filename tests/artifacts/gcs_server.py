"""A small Google Cloud Storage for tests: its XML interface, which obstore's client speaks.

Source: https://cloud.google.com/storage/docs/xml-api/overview.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from xml.sax.saxutils import escape

from obstore.store import GCSStore
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.server.quick_server import serving_routes


@dataclass
class StoredObject:
    data: bytes
    headers: dict[str, str]
    generation: int
    changed: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


@dataclass
class GcsServer:
    """One bucket. page: objects and prefixes in one answer of a listing."""

    objects: dict[str, StoredObject] = field(default_factory=dict[str, StoredObject])
    uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = field(
        default_factory=dict[str, tuple[dict[str, str], dict[int, bytes]]]
    )
    page: int = 20
    count: int = 0

    async def answer(self, request: Request) -> Response:
        key = request.path_params.get("key", "")
        query = request.query_params
        if not key:
            return self._list(query.get("prefix", ""), query.get("delimiter"), query.get("continuation-token", ""))
        self.count += 1
        if request.method == "POST" and "uploads" in query:
            self.uploads[str(self.count)] = self._kept(request), {}
            return _xml(
                f"<InitiateMultipartUploadResult><UploadId>{self.count}</UploadId></InitiateMultipartUploadResult>"
            )
        if (upload_id := query.get("uploadId")) is not None:
            return await self._upload(request, key, upload_id)
        found = self.objects.get(key)
        if request.method == "PUT":
            match = request.headers.get("x-goog-if-generation-match")
            if match is not None and int(match) != (found.generation if found else 0):
                return Response(status_code=412)
            return self._store(key, await request.body(), self._kept(request))
        if found is None:
            return Response(status_code=404)
        if request.method == "DELETE":
            del self.objects[key]
            return Response(status_code=204)
        return self._shown(found, request.headers.get("range"))

    async def _upload(self, request: Request, key: str, upload_id: str) -> Response:
        if upload_id not in self.uploads:
            return Response(status_code=404)
        headers, parts = self.uploads[upload_id]
        if request.method == "PUT":
            body = parts[int(request.query_params["partNumber"])] = await request.body()
            return Response(headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        del self.uploads[upload_id]
        if request.method == "DELETE":
            return Response(status_code=204)
        stored = self._store(key, b"".join(parts[number] for number in sorted(parts)), headers)
        etag = escape(stored.headers["etag"])
        return _xml(f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>")

    def _store(self, key: str, data: bytes, headers: dict[str, str]) -> Response:
        stored = self.objects[key] = StoredObject(data, headers, self.count)
        return Response(headers={"ETag": stored.etag, "x-goog-generation": str(stored.generation)})

    def _kept(self, request: Request) -> dict[str, str]:
        return {
            name: value
            for name, value in request.headers.items()
            if name.startswith("x-goog-meta-") or name in ("content-type", "content-disposition", "cache-control")
        }

    def _shown(self, found: StoredObject, wanted: str | None) -> Response:
        headers = {
            **found.headers,
            "ETag": found.etag,
            "Last-Modified": format_datetime(found.changed, usegmt=True),
            "x-goog-generation": str(found.generation),
        }
        if wanted is None:
            return Response(found.data, headers=headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        end = min(int(last) + 1, len(found.data)) if last else len(found.data)
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(found.data)}"
        return Response(found.data[int(first) : end], 206, headers=headers)

    def _list(self, prefix: str, delimiter: str | None, after: str) -> Response:
        entries: dict[str, str] = {}
        for key, one in sorted(self.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folder = prefix + rest[: rest.index(delimiter) + 1]
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(one.data)}</Size><ETag>{escape(one.etag)}</ETag>"
                    f"<LastModified>{one.changed.isoformat().replace('+00:00', 'Z')}</LastModified></Contents>"
                )
        names = [name for name in sorted(entries) if name > after]
        page = names[: self.page]
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > len(page) else ""
        shown = "".join(entries[name] for name in page)
        return _xml(
            f"<ListBucketResult><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{shown}</ListBucketResult>"
        )


def _xml(body: str) -> Response:
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>{body}', media_type="application/xml")


@asynccontextmanager
async def running_gcs() -> AsyncGenerator[tuple[GcsServer, GCSStore]]:
    """The server, and a store of its bucket under a prefix."""
    server = GcsServer()
    methods = ["GET", "HEAD", "PUT", "POST", "DELETE"]
    routes = [Route(path, server.answer, methods=methods) for path in ("/bucket", "/bucket/{key:path}")]
    async with serving_routes(*routes) as url:
        account = {
            "gcs_base_url": url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        yield (
            server,
            GCSStore(
                "bucket",
                prefix="some/where",
                service_account_key=json.dumps(account),
                client_options={"allow_http": True},
            ),
        )
