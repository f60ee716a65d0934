"""An S3 server that keeps its objects over restarts: moto, with the requests that it has recorded.

Run as a program in an environment with `moto[server]`: HOST PORT FILE BUCKET.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_READS = ("GET", "HEAD")


def main() -> None:
    host, port, file, bucket = sys.argv[1:]
    os.environ["MOTO_RECORDER_FILEPATH"] = file

    # moto, of another environment than this file's tests, reads its variables when it is imported.
    from moto.moto_api import recorder  # pyright: ignore[reportMissingImports]
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # pyright: ignore[reportMissingImports]
    from moto.s3 import models  # pyright: ignore[reportMissingImports]
    from werkzeug.serving import run_simple
    from werkzeug.test import Client

    numbers = count()

    initialize = models.FakeMultipart.__init__

    def initialize_with_number(upload: Any, *arguments: Any, **options: Any) -> None:
        """Gives an upload the same id again when the requests are repeated in their order."""
        initialize(upload, *arguments, **options)
        upload.id = f"upload-{next(numbers)}"

    models.FakeMultipart.__init__ = initialize_with_number

    application = DomainDispatcherApplication(create_backend_app)
    client = Client(application)
    recorded = Path(file).read_text().splitlines() if Path(file).exists() else []
    for line in recorded:
        try:
            request = json.loads(line)
        except json.JSONDecodeError:
            continue  # the server was killed while it wrote the line, and has not answered
        if request["method"] in _READS:
            continue
        url = urlsplit(request["url"])
        with contextlib.suppress(Exception):  # moto raises any error for what it answered with 500
            client.open(
                url.path,
                method=request["method"],
                query_string=url.query,
                headers=list(request["headers"].items()),
                data=base64.b64decode(request["body"]) if request["body_encoded"] else b"",
                base_url=f"{url.scheme}://{url.netloc}",
            )

    recorder.start_recording()
    if not recorded:
        client.put(f"/{bucket}", base_url=f"http://{host}:{port}")
    # One request at a time: in threads, moto checks the condition of a PUT and stores the object in two steps.
    run_simple(host, int(port), application)


if __name__ == "__main__":
    main()
