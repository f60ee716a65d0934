"""An MCP server of an older protocol version, by hand, which starts fast: it says when its list of tools changes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

if path := os.environ.get("BOOKSHOP_LOG"):
    Path(path).write_text(f"start {os.getpid()}\n")

SCHEMA = {"type": "object", "properties": {}}
tools: list[dict[str, Any]] = [{"name": "change", "inputSchema": SCHEMA}]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "old", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": tools}
    if method == "tools/call":
        tools.append({"name": "extra", "inputSchema": SCHEMA})
        send({"method": "notifications/tools/list_changed"})
        return {"content": [{"type": "text", "text": "changed"}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        if result is None:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": request["id"], "result": result})
