"""Permissions of all endpoints, written a second time: an endpoint that isn't here fails the tests, and so does one
whose scope was changed without this table."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from greenroom.records.run import AgentRunRequest
from greenroom.records.schedule import Schedule
from greenroom.server.endpoint import Endpoint
from greenroom.server.request_context import is_path_without_app
from greenroom.server.routes.evaluation import AddSessionToEvalSetRequest

USER = "/apps/{app_name}/users/{user_id}"
SESSION = USER + "/sessions/{session_id}"
ARTIFACT = SESSION + "/artifacts/{artifact_name:path}"
DEV = "/dev/apps/{app_name}"

RUN_WEBHOOKS = "/runs/{run_id}/webhooks"
APP_WEBHOOKS = "/apps/{app_name}/webhooks"
VERSIONS = "/apps/{app_name}/versions"
SCHEDULES = "/apps/{app_name}/schedules"
SCHEDULE = SCHEDULES + "/{schedule_id}"

SCOPE_OF: dict[str, str] = {
    f"{method} {path}": scope
    for scope, lines in {
        "open": """
            GET /health; GET /readyz; GET /version; GET /openapi.json; GET /docs; GET /; GET /dev-ui/{file:path}; GET /dev-ui/config
            GET /dev-ui/assets/config/runtime-config.json; GET POST /config/telemetry; GET POST /sign-in
            GET POST /signals/{token}
        """,
        "run": f"""
            POST /run; POST /run_sse; POST {SESSION}/runs; POST /runs/{{run_id}}/cancel; POST /runs/retry; POST /runs/{{run_id}}/retry; POST {SESSION}/rewind; POST /runs/{{run_id}}/signals/{{signal_name}}; POST {USER}/sessions
            POST PATCH DELETE {SESSION}; POST {SESSION}/artifacts; PUT DELETE {ARTIFACT}; POST {SESSION}/fork; POST {SESSION}/events/{{event_id}}/edit; DELETE {USER}/credentials/{{credential_key:path}}; PATCH {USER}/memory; PUT DELETE {USER}/memories/{{memory_id}}
            POST {DEV}/tests/run
            POST {DEV}/eval-sets/{{eval_set_id}}/run; POST {DEV}/eval_sets/{{eval_set_id}}/run_eval
            POST /agent-identity/finalize
            POST DELETE {SESSION}/events/{{event_id}}/feedback
            POST {SCHEDULES}; PUT DELETE {SCHEDULE}; POST {SCHEDULE}/pause; POST {SCHEDULE}/resume; POST {SCHEDULE}/run
            POST /requests/{{request_id}}/answer; POST /requests/{{request_id}}/delegate
            POST {RUN_WEBHOOKS}; DELETE {RUN_WEBHOOKS}/{{webhook_id}}; POST {RUN_WEBHOOKS}/{{webhook_id}}/test
            POST {RUN_WEBHOOKS}/{{webhook_id}}/deliveries/{{delivery_id}}/redeliver
        """,
        "read": f"""
            GET /runs; GET {USER}/export; GET {USER}/credentials; GET /runs/{{run_id}}; GET /runs/{{run_id}}/events; GET {SESSION}; GET {USER}/sessions; GET {SESSION}/events
            GET {SESSION}/artifacts; GET {ARTIFACT}; GET {ARTIFACT}/versions; GET {ARTIFACT}/versions/metadata
            GET {ARTIFACT}/versions/{{version}}; GET {ARTIFACT}/versions/{{version}}/metadata
            GET {ARTIFACT}/versions/{{version}}/content
            GET /list-apps; GET {USER}/memories; GET /apps/{{app_name}}/app-info; GET /apps/{{app_name}}/usage; GET /apps/{{app_name}}/budgets; GET {DEV}/builder; GET {DEV}/metrics-info
            GET {DEV}/tests; GET {DEV}/tests/{{test_name}}
            GET {DEV}/eval_sets; GET {DEV}/eval-sets; GET {DEV}/eval_results; GET {DEV}/eval-results
            GET {DEV}/eval-sets/{{eval_set_id}}; GET {DEV}/eval-sets/{{eval_set_id}}/versions; GET {DEV}/eval_sets/{{eval_set_id}}/evals
            GET {DEV}/eval_sets/{{eval_set_id}}/evals/{{eval_id}}; GET {DEV}/eval_results/{{eval_result_id}}
            GET {SESSION}/feedback; GET /apps/{{app_name}}/feedback; GET /statistics
            GET {SCHEDULES}; POST {SCHEDULES}/preview; GET {SCHEDULE}; GET {SCHEDULE}/runs
            GET {RUN_WEBHOOKS}; GET {RUN_WEBHOOKS}/{{webhook_id}}/deliveries
            GET /requests; GET /requests/{{request_id}}; GET /requests/{{request_id}}/session
        """,
        "manage": f"""
            POST {DEV}/eval-sets; POST {DEV}/eval_sets/{{eval_set_id}}; DELETE {DEV}/eval-sets/{{eval_set_id}}
            POST {DEV}/eval_sets/{{eval_set_id}}/add_session; POST {DEV}/eval-sets/{{eval_set_id}}/add-feedback; POST {SESSION}/events/{{event_id}}/case; PUT DELETE {DEV}/eval_sets/{{eval_set_id}}/evals/{{eval_id}}
            POST {DEV}/tests/rebuild; PUT DELETE {DEV}/tests/{{test_name}}
            DELETE {USER}; GET /apps/{{app_name}}/retention; GET /apps/{{app_name}}/waiting-runs; GET {APP_WEBHOOKS}; GET PUT DELETE {APP_WEBHOOKS}/{{webhook_id}}
            GET {APP_WEBHOOKS}/{{webhook_id}}/deliveries; POST {APP_WEBHOOKS}/{{webhook_id}}/test
            POST {APP_WEBHOOKS}/{{webhook_id}}/deliveries/{{delivery_id}}/redeliver
            GET POST {VERSIONS}; GET {VERSIONS}/scores; GET DELETE {VERSIONS}/{{version_name}}; PUT /apps/{{app_name}}/traffic
            GET {VERSIONS}/{{version_name}}/compare/{{other_version_name}}
            POST {DEV}/builder/save; POST {DEV}/builder/cancel; GET {DEV}/builder/files; GET /dev/builder/schema
        """,
        "debug": f"""
            GET {DEV}/debug/trace/session/{{session_id}}; GET {DEV}/debug/trace/{{event_id}}
            GET /apps/{{app_name}}/logs; GET {DEV}/build_graph; GET {DEV}/build_graph_image; GET {DEV}/graph
            GET /dev{SESSION}/events/{{event_id}}/graph; GET /metrics; GET /replicas; GET /statistics/load
        """,
        "any": "GET /me",
        "audit": "GET /audit",
        "admin": """
            GET POST /keys; GET DELETE /keys/{key_id}; GET /service-accounts
            GET PUT DELETE /service-accounts/{account_name}; GET /roles; PUT DELETE /roles/{role_name}
            PUT DELETE /apps/{app_name}/budgets; GET /settings
        """,
    }.items()
    for line in re.split(r"[;\n]", lines)
    if line.strip()
    for *methods, path in [line.split()]
    for method in methods
}

Reach: TypeAlias = Literal["user", "run", "request", "trace", "schedule", "all users", "app", "access", "server"]
"""Object of a request: a user of an app, a run, a request to people or a trace by its id alone, a schedule by its app and id, all users of an app, an app, a key, service account or role, or none."""

_OF_A_USER = {"user_id", "session_id", "artifact_name", "version", "event_id", "credential_key", "memory_id"}
_OF_AN_APP = {"app_name", "eval_set_id", "eval_id", "eval_result_id", "test_name"}


def reach_of(endpoint: Endpoint, path: str) -> Reach:
    """Raises KeyError for a path with a parameter that has no rule yet."""
    names = set(re.findall(r"{(\w+)", path))
    if is_path_without_app(path):
        names.add("app_name")
    if path.startswith(SCHEDULE):
        return "schedule"
    if endpoint.body in (AgentRunRequest, AddSessionToEvalSetRequest, Schedule):
        return "user"
    if "run_id" in names and names <= {"run_id", "signal_name", "webhook_id", "delivery_id"}:
        return "run"
    if endpoint.path == "/settings" or (endpoint.access == "admin" and endpoint.method != "GET"):
        return "access"
    if names & {"key_id", "account_name", "role_name"}:
        return "access"
    if names == {"request_id"}:
        return "request"
    if path.startswith((APP_WEBHOOKS, VERSIONS)) or path.endswith(("/waiting-runs", "/traffic", "/retention")):
        return "all users"
    if "/debug/trace/" in path and names <= {"app_name", "session_id", "event_id"}:
        return "trace"
    if "user_id" in names and names <= _OF_A_USER | {"app_name"}:
        return "user"
    if names and names <= _OF_AN_APP:
        return "app"
    if not names or names in ({"file"}, {"token"}):
        return "server"
    raise KeyError(f"{path} has no rule")


def status_of(endpoint: Endpoint, *, with_keys: bool = False) -> int:
    """Status of a permitted request to the server of these tests, whose agents are in code and can't be edited.

    with_keys: the server asks for keys.
    """
    if endpoint.tag == "access" and endpoint.access == "admin" and not with_keys:
        return 501
    if endpoint.tag == "editing" and endpoint.access == "manage" and "cancel" not in endpoint.path:
        return 501
    if endpoint.path.endswith("/{memory_id}") and endpoint.method == "PUT":
        return 404
    if endpoint.path.endswith("/budgets") and endpoint.method == "DELETE":
        return 422  # the query names none
    if endpoint.path == "/audit":
        return 501  # no audit trail is kept
    if endpoint.path == "/signals/{token}":
        return 404  # it has no signature
    if endpoint.path.endswith("/delegate"):
        return 403  # the session's user may not
    if endpoint.path == VERSIONS and endpoint.method == "POST":
        return 501  # the agents are in code
    if "{version_name}" in endpoint.path:
        return 404
    if "/signals/" in endpoint.path:
        return 409  # no run waits for one
    if endpoint.path == "/runs/{run_id}/retry":
        return 409  # no run has failed
    if endpoint.path.endswith("/rewind"):
        return 404  # to a run that isn't there
    return endpoint.status
