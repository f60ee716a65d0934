"""A collector of OTLP traces, which writes the names of the spans that it receives to a file: HOST PORT FILE."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def main() -> None:
    host, port, file = sys.argv[1:]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = ExportTraceServiceRequest.FromString(body)
            spans = [
                span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
            ]
            with open(file, "a", encoding="utf-8") as output:
                output.writelines(f"{span.name}\n" for span in spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
