"""Each path that ADK's clients and web pages use, old and new, written out: none can vanish with its row of the table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.serving import Json, Serving

HEADERS = {"x-adk-telemetry-request": "true"}
MESSAGE = {"parts": [{"text": "hi"}]}
RUN = {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": MESSAGE}
USER = "/apps/echo/users/ann"
SESSION = f"{USER}/sessions/s-1"
ARTIFACT = f"{SESSION}/artifacts/dir/a.png"

TURN = {"userContent": {"parts": [{"text": "x"}]}}
CASE = {"evalId": "c1", "conversation": [TURN]}
ADDED = {"evalId": "c2", "sessionId": "s-1", "userId": "ann"}
EVALUATED: list[tuple[str, str, Any]] = [
    ("POST", "/eval-sets", {"evalSet": {"eval_set_id": "set_b", "eval_cases": []}}),
    ("POST", "/eval_sets/set_b", None),
    ("GET", "/eval-sets/set_a", None),
    ("DELETE", "/eval-sets/set_a", None),
    ("GET", "/eval_sets/set_a/evals", None),
    ("POST", "/eval_sets/set_a/add_session", ADDED),
    ("POST", "/eval_sets/set_a/add-session", ADDED),
    ("POST", "/eval-sets/set_a/add-session", ADDED),
    *((method, "/eval_sets/set_a/evals/c1", CASE) for method in ("GET", "PUT", "DELETE")),
    *((method, "/eval-sets/set_a/eval-cases/c1", CASE) for method in ("GET", "PUT", "DELETE")),
    ("POST", "/eval-sets/set_a/run", {}),
    ("POST", "/eval_sets/set_a/run_eval", {}),
    ("POST", "/eval_sets/set_a/run-eval", {}),
    ("GET", "/eval_results/{result}", None),
    ("GET", "/eval-results/{result}", None),
    ("GET", "/metrics-info", None),
]
"""Below `/dev/apps/{app}` and, for the pages of before May 2026 and ADK for Java, below `/apps/{app}`."""

ANSWERED: list[tuple[str, str, Any]] = [
    ("GET", "/health", None),
    ("GET", "/version", None),
    ("GET", "/list-apps", None),
    ("GET", "/list-apps?relative_path=./", None),
    ("GET", "/apps/echo/app-info", None),
    ("GET", "/app-info", None),
    ("GET", "/users/ann/sessions", None),
    ("POST", "/users/ann/sessions", {}),
    ("GET", "/users/ann/sessions/s-1", None),
    ("PATCH", "/users/ann/sessions/s-1", {"stateDelta": {}}),
    ("DELETE", "/users/ann/sessions/s-1", None),
    ("GET", "/users/ann/sessions/s-1/artifacts/dir/a.png", None),
    ("GET", "/users/ann/sessions/s-1/artifacts/dir/a.png/versions/0", None),
    ("PATCH", "/users/ann/memory", {"sessionId": "s-1"}),
    ("GET", f"{USER}/sessions", None),
    ("POST", f"{USER}/sessions", {}),
    ("GET", SESSION, None),
    ("POST", f"{USER}/sessions/s-2", {}),
    ("PATCH", SESSION, {"stateDelta": {}}),
    ("DELETE", SESSION, None),
    ("GET", f"{SESSION}/artifacts", None),
    ("POST", f"{SESSION}/artifacts", {"filename": "x", "artifact": {"text": "x"}}),
    ("GET", ARTIFACT, None),
    ("DELETE", ARTIFACT, None),
    ("GET", f"{ARTIFACT}/versions", None),
    ("GET", f"{ARTIFACT}/versions/0", None),
    ("GET", f"{ARTIFACT}/versions/latest", None),
    ("GET", f"{ARTIFACT}/versions/metadata", None),
    ("GET", f"{ARTIFACT}/versions/0/metadata", None),
    ("PATCH", f"{USER}/memory", {"sessionId": "s-1"}),
    ("POST", "/run", RUN),
    ("POST", "/run_sse", RUN),
    ("POST", "/run-sse", RUN),
    *(("POST", path, {**RUN, "appName": None}) for path in ("/run", "/run_sse")),
    *(("GET", f"{prefix}/debug/trace/{{event}}", None) for prefix in ("/dev/apps/echo", "")),
    *(("GET", f"{prefix}/debug/trace/session/s-1", None) for prefix in ("/dev/apps/echo", "")),
    *(("GET", f"/dev/{path}", None) for path in ("apps/echo/build_graph", "build_graph/echo")),
    *(("GET", f"/dev/{path}", None) for path in ("apps/echo/build_graph_image", "build_graph_image/echo")),
    ("GET", "/dev/apps/echo/graph", None),
    *(("GET", f"{prefix}{SESSION}/events/{{event}}/graph", None) for prefix in ("/dev", "")),
    *(
        ("GET", f"{prefix}/apps/echo/{name}", None)
        for prefix in ("/dev", "")
        for name in ("eval_sets", "eval-sets", "eval_results", "eval-results")
    ),
    ("GET", "/config/telemetry", None),
    ("POST", "/config/telemetry", {"telemetry": False}),
    ("GET", "/dev-ui/", None),
    ("GET", "/dev-ui/config", None),
    ("GET", "/dev-ui/assets/config/runtime-config.json", None),
    *(("GET", path, None) for path in ("/dev/apps/echo/builder?ts=1&tmp=true", "/builder/app/echo?ts=1")),
    *(("POST", path, None) for path in ("/dev/apps/echo/builder/cancel", "/builder/app/echo/cancel")),
    ("GET", "/docs", None),
    ("GET", "/openapi.json", None),
]


async def furnished(server: Serving) -> str:
    """Makes what the paths name. Returns the id of an event."""
    session = await server.new_session("echo")
    part = {"filename": "dir/a.png", "artifact": {"text": "x"}}
    assert (await server.client.post(f"{session}/artifacts", json=part)).status_code == 200
    (event,) = (await server.run("echo")).json()
    return event["id"]


async def test_what_clients_read_is_answered(server: Serving) -> None:
    event = await furnished(server)
    for method, path, _ in ANSWERED:
        if method == "GET":
            reply = await server.client.get(path.replace("{event}", event), headers=HEADERS)
            assert reply.status_code == 200, (path, reply.text)


@pytest.mark.parametrize(("method", "path", "body"), [one for one in ANSWERED if one[0] != "GET"])
async def test_what_clients_write_is_answered(server: Serving, method: str, path: str, body: Json | None) -> None:
    await furnished(server)
    reply = await server.client.request(method, path, headers=HEADERS, json=body)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("prefix", ["/dev/apps/echo", "/apps/echo"])
async def test_what_clients_evaluate_is_answered(server: Serving, prefix: str) -> None:
    await furnished(server)
    call = server.client.request
    eval_set = {"eval_set_id": "set_a", "eval_cases": [CASE]}
    is_changed = True
    result = ""
    for method, path, body in EVALUATED:
        if is_changed:
            for name in ("set_a", "set_b"):
                await call("DELETE", f"{prefix}/eval-sets/{name}")
            made = await call("POST", f"{prefix}/eval-sets", json={"eval_set": eval_set})
            assert made.status_code == 200, made.text
            await call("POST", f"{prefix}/eval-sets/set_a/run", json={})
            result = (await call("GET", f"{prefix}/eval_results")).json()[-1]
        reply = await call(method, prefix + path.replace("{result}", result), json=body)
        assert reply.status_code == 200, (method, path, reply.text)
        is_changed = method != "GET"


@pytest.mark.parametrize("path", ["/dev/apps/echo/builder/save?tmp=true", "/builder/save", "/agent-identity/finalize"])
async def test_what_is_not_offered_says_so(server: Serving, path: str) -> None:
    kind = {"json": {}} if "identity" in path else {"files": {"files": ("echo/root_agent.yaml", b"name: x\n")}}
    reply = await server.client.post(path, **kind)  # type: ignore[arg-type]
    assert (reply.status_code, reply.json()["code"]) == (501, "NotOffered")
    assert "None" not in reply.json()["detail"]


async def test_lists_of_what_is_not_there_are_empty_in_both_forms(server: Serving) -> None:
    get = server.client.get
    for prefix in ("/dev/apps/echo", "/apps/echo"):
        assert (await get(f"{prefix}/eval_sets")).json() == []
        assert (await get(f"{prefix}/eval-sets")).json() == {"evalSetIds": []}
        assert (await get(f"{prefix}/eval_results")).json() == []
        assert (await get(f"{prefix}/eval-results")).json() == {"evalResultIds": []}
    assert (await get("/dev/apps/echo/tests")).json() == []


async def test_the_visual_editor_finds_nothing_and_is_switched_off(server: Serving) -> None:
    for path in ("/dev/apps/echo/builder?ts=1&tmp=true&file_path=x.yaml", "/builder/app/echo?ts=1"):
        reply = await server.client.get(path)
        assert (reply.status_code, reply.content) == (200, b"")
        assert reply.headers["content-type"].startswith("text/plain")
    assert (await server.client.post("/dev/apps/echo/builder/cancel")).json() is True


async def test_the_page_learns_not_to_ask_for_consent(server: Serving) -> None:
    config = await server.client.get("/dev-ui/assets/config/runtime-config.json")
    assert config.json() == {"backendUrl": "", "telemetry": False, "edit": False}
    assert config.headers["cache-control"] == "no-store"
    assert (await server.client.get("/config/telemetry")).json() == {"telemetry": False}
    for wished in (True, False):
        body = {"telemetry": wished}
        assert (await server.client.post("/config/telemetry", json=body)).status_code == 400
        reply = await server.client.post("/config/telemetry", json=body, headers=HEADERS)
        assert (reply.status_code, reply.json()) == (200, {"telemetry": False})
    assert (await server.client.get("/dev-ui/config")).json() == {"logo_text": None, "logo_image_url": None}
