"""The table of endpoints: the source of routing, decoding, documentation and generated tests.

Source of paths: ADK's HTTP surface, with its aliases; `/runs/…` and `…/events`, `…/runs` are ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from greenroom.errors import (
    AgentNotFound,
    AppLoadError,
    AppNotFound,
    AppNotNamed,
    ApprovalRefused,
    ArtifactNotFound,
    CallerError,
    IdempotencyConflict,
    InvalidRequest,
    MissingExtra,
    NotOffered,
    RunFailed,
    RunNotFound,
    SessionBusy,
    SessionExists,
    SessionFull,
    SessionNotFound,
    TooLarge,
    TooManyRuns,
    TraceNotFound,
    Unauthenticated,
    Unavailable,
)
from greenroom.records.auth import GrantedLogin
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.records.listings import AppInfo, ArtifactVersion, ListAppsResponse
from greenroom.records.run import AgentRunRequest, ListRunsResponse, Run, RunStatus, SessionRunRequest
from greenroom.records.session import Session
from greenroom.server.access.identity import Access
from greenroom.server.endpoint import Endpoint, Header, Query
from greenroom.server.routes import (
    apps,
    artifacts,
    credentials,
    debug,
    evaluation,
    live,
    run,
    server,
    sessions,
    web_page,
)
from greenroom.telemetry.span_record import SpanRecord

_APP = "/apps/{app_name}"
_DEV = "/dev/apps/{app_name}"
_SESSIONS = "/apps/{app_name}/users/{user_id}/sessions"
_SESSION = _SESSIONS + "/{session_id}"
_CREDENTIALS = "/apps/{app_name}/users/{user_id}/credentials"
_ARTIFACTS = _SESSION + "/artifacts"
_ARTIFACT = _ARTIFACTS + "/{artifact_name:path}"

_MOST = 2**53 - 1  # exact in every JSON parser, and in every database's integers
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]

_PAGE = (
    Query(name="after", type=Count, description="Sequence number (`id`) of the event after which to begin."),
    Query(name="limit", type=Positive, description="Maximum number of events; 1000 by default."),
)
_LAST_EVENT_ID = Header(
    name="Last-Event-ID",
    description="The `id` of the last event seen; the stream resumes after it.",
    pattern="^[0-9]{0,18}$",
)
_CONSENT = Header(
    name="X-ADK-Telemetry-Request",
    description="Must be `true`; refuses other sites' forms.",
    pattern="^true$",
    is_required=True,
)
_IDEMPOTENCY_KEY = Header(name="Idempotency-Key", description="Requests with the same key and body start one run.")
_STARTING = (
    AppNotFound, AppLoadError, SessionNotFound, RunNotFound, InvalidRequest, TooLarge, SessionBusy, SessionFull,
    ApprovalRefused, IdempotencyConflict, TooManyRuns, Unavailable,
)  # fmt: skip

_SET, _CASE = "/eval_sets/{eval_set_id}", "/eval_sets/{eval_set_id}/evals/{eval_id}"
_EVALUATION: tuple[tuple[str, Access, str, *tuple[str, ...]], ...] = (
    ("POST", "manage", "Create an evaluation set", "/eval-sets"),
    ("POST", "manage", "Create an evaluation set with this name", _SET),
    ("GET", "read", "An evaluation set", "/eval-sets/{eval_set_id}"),
    ("DELETE", "manage", "Delete an evaluation set", "/eval-sets/{eval_set_id}"),
    ("GET", "read", "Ids of the cases of a set", _SET + "/evals"),
    ("POST", "manage", "Add a session to a set as a case",
     _SET + "/add_session", _SET + "/add-session", "/eval-sets/{eval_set_id}/add-session"),
    ("GET", "read", "A case", _CASE, "/eval-sets/{eval_set_id}/eval-cases/{eval_id}"),
    ("PUT", "manage", "Replace a case", _CASE, "/eval-sets/{eval_set_id}/eval-cases/{eval_id}"),
    ("DELETE", "manage", "Delete a case", _CASE, "/eval-sets/{eval_set_id}/eval-cases/{eval_id}"),
    ("POST", "run", "Evaluate", "/eval-sets/{eval_set_id}/run"),
    ("POST", "run", "Evaluate; the response is a list", _SET + "/run_eval", _SET + "/run-eval"),
    ("GET", "read", "A result", "/eval_results/{eval_result_id}", "/eval-results/{eval_result_id}"),
    ("GET", "read", "Available metrics", "/metrics-info"),
)  # fmt: skip
"""Method, access, summary and paths of the endpoints that evaluation needs."""

_DARK_MODE = (Query(name="dark_mode", type=bool, default=False, description="Use the dark palette."),)
_DARK_BY_DEFAULT = (Query(name="dark_mode", type=bool, default=True, description="Use the dark palette."),)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST", path="/run", handler=run.run, tag="runs", access="run",
        summary="Run an agent and wait for all its events",
        body=AgentRunRequest, headers=(_IDEMPOTENCY_KEY,), replies=list[Event],
        errors=(*_STARTING, AppNotNamed, RunFailed),
    ),
    Endpoint(
        method="POST", path="/run_sse", aliases=("/run-sse",), handler=run.run_sse, tag="runs", access="run",
        summary="Run an agent and stream its events",
        body=AgentRunRequest, headers=(_IDEMPOTENCY_KEY,), replies=Event, errors=(*_STARTING, AppNotNamed),
        is_stream=True,
    ),
    Endpoint(
        method="POST", path=_SESSION + "/runs", handler=run.start_in_background, tag="runs", access="run",
        summary="Start a run and don't wait for it",
        body=SessionRunRequest, headers=(_IDEMPOTENCY_KEY,), replies=Run, status=202, errors=_STARTING,
    ),
    Endpoint(
        method="GET", path="/runs", handler=run.list_runs, tag="runs", access="read",
        summary="Runs that the caller may see, newest first", replies=ListRunsResponse, errors=(InvalidRequest,),
        query=(
            Query(name="app_name", type=str, description="Only runs of this app."),
            Query(name="user_id", type=str, description="Only runs of this user."),
            Query(name="session_id", type=str, description="Only runs of this session."),
            Query(
                name="status", type=list[RunStatus], is_repeatable=True, description="Only runs with one of these."
            ),
            Query(name="created_from", type=float, description="Only runs created at or after these Unix seconds."),
            Query(name="created_before", type=float, description="Only runs created before these Unix seconds."),
            Query(name="limit", type=Positive, description="Maximum number of runs; 100 by default, at most 1000."),
            Query(name="page_token", type=str, description="The `nextPageToken` of the previous page."),
        ),
    ),
    Endpoint(
        method="GET", path="/runs/{run_id}", handler=run.get_run, tag="runs", access="read",
        summary="The record of a run", replies=Run, errors=(RunNotFound,),
    ),
    Endpoint(
        method="GET", path="/runs/{run_id}/events", handler=run.run_events, tag="runs", access="read",
        summary="A run's events: a page, or a stream when text/event-stream is accepted; Last-Event-ID resumes it",
        query=_PAGE, headers=(_LAST_EVENT_ID,), replies=run.EventPage, errors=(RunNotFound, InvalidRequest),
    ),
    Endpoint(
        method="POST", path="/runs/{run_id}/cancel", handler=run.cancel_run, tag="runs", access="run",
        summary="Stop a run", replies=Run, errors=(RunNotFound,),
    ),
    Endpoint(
        method="GET", path=_SESSION, handler=sessions.get_session, tag="sessions", access="read",
        summary="A session with its state and its events", replies=Session, errors=(SessionNotFound, InvalidRequest),
        query=(
            Query(
                name="events", type=Literal["all"],
                description="`all` for internal events, too: checkpoints of workflows, steps of agents run as tools.",
            ),
        ),
    ),
    Endpoint(
        method="POST", path=_SESSIONS, handler=sessions.create_session, tag="sessions", access="run",
        summary="Create a session", body=sessions.CreateSessionRequest | None, body_is_optional=True, replies=Session,
        errors=(AppNotFound, SessionExists, InvalidRequest, CallerError, TooLarge),
    ),
    Endpoint(
        method="GET", path=_SESSIONS, handler=sessions.list_sessions, tag="sessions", access="read",
        summary="A user's sessions, without their events", replies=list[Session], errors=(InvalidRequest,),
        query=(
            Query(name="limit", type=Positive, description="Maximum number of sessions; all by default."),
            Query(name="page_token", type=str, description="From the header `x-next-page-token` of the previous page."),
        ),
    ),
    Endpoint(
        method="POST", path=_SESSION, handler=sessions.create_session_with_id, tag="sessions", access="run",
        summary="Create a session with the given id; the body is its state",
        body=dict[str, Any] | None, body_is_optional=True, replies=Session,
        errors=(AppNotFound, SessionExists, InvalidRequest, TooLarge),
    ),
    Endpoint(
        method="PATCH", path=_SESSION, handler=sessions.patch_session, tag="sessions", access="run",
        summary="Change a session's state", body=sessions.PatchSessionRequest, replies=Session,
        errors=(SessionNotFound, InvalidRequest, TooLarge, SessionFull),
    ),
    Endpoint(
        method="DELETE", path=_SESSION, handler=sessions.delete_session, tag="sessions", access="run",
        summary="Delete a session and its events", replies=None,
    ),
    Endpoint(
        method="GET", path=_SESSION + "/events", handler=run.session_events, tag="sessions", access="read",
        summary="A session's log: a page, or an endless stream when text/event-stream is accepted",
        query=_PAGE, headers=(_LAST_EVENT_ID,), replies=run.EventPage, errors=(SessionNotFound, InvalidRequest),
    ),
    Endpoint(
        method="GET", path=_ARTIFACTS, handler=artifacts.list_artifacts, tag="artifacts", access="read",
        summary="Names of a session's artifacts, and of the user's", replies=list[str],
    ),
    Endpoint(
        method="POST", path=_ARTIFACTS, handler=artifacts.save_artifact, tag="artifacts", access="run",
        summary="Save a new version of an artifact", body=artifacts.SaveArtifactRequest, replies=ArtifactVersion,
        errors=(AppNotFound, CallerError, TooLarge),
    ),
    Endpoint(
        method="GET", path=_ARTIFACT + "/versions", handler=artifacts.list_versions, tag="artifacts", access="read",
        summary="Versions of an artifact", replies=list[int],
    ),
    Endpoint(
        method="GET", path=_ARTIFACT + "/versions/metadata", handler=artifacts.list_version_metadata,
        tag="artifacts", access="read", summary="Metadata of all versions", replies=list[ArtifactVersion],
    ),
    Endpoint(
        method="GET", path=_ARTIFACT + "/versions/{version}", handler=artifacts.load_version, tag="artifacts",
        access="read", summary="One version; `latest` is the newest", replies=Part,
        errors=(ArtifactNotFound, InvalidRequest),
    ),
    Endpoint(
        method="GET", path=_ARTIFACT + "/versions/{version}/metadata", handler=artifacts.get_version_metadata,
        tag="artifacts", access="read", summary="Metadata of one version", replies=ArtifactVersion,
        errors=(ArtifactNotFound, InvalidRequest),
    ),
    Endpoint(
        method="GET", path=_ARTIFACT, handler=artifacts.load_artifact, tag="artifacts", access="read",
        summary="An artifact, its newest version by default", replies=Part,
        query=(Query(name="version", type=Count, description="The version; the newest by default."),),
        errors=(ArtifactNotFound, InvalidRequest),
    ),
    Endpoint(
        method="DELETE", path=_ARTIFACT, handler=artifacts.delete_artifact, tag="artifacts", access="run",
        summary="Delete all versions of an artifact", replies=None,
    ),
    Endpoint(
        method="GET", path=_CREDENTIALS, handler=credentials.list_credentials, tag="credentials", access="read",
        summary="The logins that a user granted, without secrets", replies=list[GrantedLogin],
    ),
    Endpoint(
        method="DELETE", path=_CREDENTIALS + "/{credential_key:path}", handler=credentials.revoke_credential,
        tag="credentials", access="run", summary="Revoke a granted login and delete the stored credential",
        replies=None,
    ),
    Endpoint(
        method="PATCH", path="/apps/{app_name}/users/{user_id}/memory", handler=sessions.add_session_to_memory,
        tag="memory", access="run", summary="Add a session to memory", body=sessions.AddToMemoryRequest, replies=None,
        errors=(SessionNotFound, InvalidRequest),
    ),
    Endpoint(
        method="GET", path="/list-apps", handler=apps.list_apps, tag="apps", access="read",
        summary="Names of the apps; with `detailed`, descriptions and load errors",
        query=(Query(name="detailed", type=bool, default=False, description="Include descriptions and errors."),),
        replies=list[str] | ListAppsResponse,
    ),
    Endpoint(
        method="GET", path="/apps/{app_name}/app-info", handler=apps.app_info, tag="apps", access="read",
        summary="An app's agents and tools", replies=AppInfo, errors=(AppNotFound, AppLoadError, CallerError),
    ),
    Endpoint(
        method="GET", path="/dev/apps/{app_name}/debug/trace/session/{session_id}",
        aliases=("/debug/trace/session/{session_id}",), handler=debug.session_trace, tag="debug", access="debug",
        summary="The spans of a session's runs, at most the newest 1000", replies=list[SpanRecord],
    ),
    Endpoint(
        method="GET", path="/dev/apps/{app_name}/debug/trace/{event_id}", aliases=("/debug/trace/{event_id}",),
        handler=debug.event_trace, tag="debug", access="debug",
        summary="The span of an event: its attributes, with `trace_id` and `span_id`",
        replies=dict[str, Any], errors=(TraceNotFound,),
    ),
    Endpoint(
        method="GET", path=_DEV + "/build_graph", aliases=("/dev/build_graph/{app_name}",), handler=debug.app_tree,
        tag="debug", access="debug", summary="An app with its tree of agents, their instructions and tools",
        replies=dict[str, Any], errors=(AppNotFound, AppLoadError),
    ),
    Endpoint(
        method="GET", path=_DEV + "/build_graph_image", aliases=("/dev/build_graph_image/{app_name}",),
        handler=debug.app_graphs, tag="debug", access="debug",
        summary="Graphs of an app and of its workflow agents, by path",
        query=(*_DARK_MODE, Query(name="node", type=str, description="Return only the graph with this path.")),
        replies=dict[str, debug.GraphResponse],
        errors=(AppNotFound, AppLoadError, AgentNotFound),
    ),
    Endpoint(
        method="GET", path=_DEV + "/graph", handler=debug.app_graph, tag="debug", access="debug",
        summary="The graph of an app's agents and tools", query=_DARK_MODE, replies=debug.GraphResponse,
        errors=(AppNotFound, AppLoadError),
    ),
    Endpoint(
        method="GET", path="/dev" + _SESSION + "/events/{event_id}/graph",
        aliases=(_SESSION + "/events/{event_id}/graph",), handler=debug.event_graph, tag="debug", access="debug",
        summary="The graph of an app, with the agents and tools of an event highlighted", query=_DARK_BY_DEFAULT,
        replies=debug.GraphResponse, errors=(AppNotFound, AppLoadError, SessionNotFound),
    ),
    Endpoint(
        method="GET", path="/metrics", handler=server.metrics, tag="server", access="debug",
        summary="Metrics of runs, models and tools since the start of the server, in Prometheus's text format",
        media_type="text/plain", errors=(MissingExtra,),
    ),
    Endpoint(
        method="GET", path="/health", aliases=("/livez",), handler=server.health, tag="server", access="open",
        summary="Whether the server answers", replies=dict[str, str],
    ),
    Endpoint(
        method="GET", path="/readyz", handler=server.ready, tag="server", access="open",
        summary="Whether the stores answer", replies=dict[str, str], errors=(Unavailable,),
    ),
    Endpoint(
        method="GET", path="/version", handler=server.version, tag="server", access="open",
        summary="Versions of the server and its language", replies=dict[str, str],
    ),
    Endpoint(
        method="GET", path="/openapi.json", handler=server.openapi, tag="server", access="open",
        summary="This interface as OpenAPI 3.1", replies=dict[str, Any],
    ),
    Endpoint(
        method="GET", path="/docs", handler=server.docs_page, tag="server", access="open",
        summary="This interface as a page", media_type="text/html",
    ),
    Endpoint(
        method="GET", path=_DEV + "/eval_sets", aliases=(_APP + "/eval_sets",), handler=evaluation.list_eval_sets,
        tag="evaluation", access="read", summary="Names of evaluation sets", replies=list[str],
    ),
    Endpoint(
        method="GET", path=_DEV + "/eval-sets", aliases=(_APP + "/eval-sets",), handler=evaluation.list_eval_set_ids,
        tag="evaluation", access="read", summary="Names of evaluation sets, as an object", replies=dict[str, list[str]],
    ),
    Endpoint(
        method="GET", path=_DEV + "/eval_results", aliases=(_APP + "/eval_results",),
        handler=evaluation.list_eval_results, tag="evaluation", access="read", summary="Ids of evaluation results",
        replies=list[str],
    ),
    Endpoint(
        method="GET", path=_DEV + "/eval-results", aliases=(_APP + "/eval-results",),
        handler=evaluation.list_eval_result_ids, tag="evaluation", access="read",
        summary="Ids of evaluation results, as an object", replies=dict[str, list[str]],
    ),
    *(
        Endpoint(
            method=method, path=_DEV + paths[0],
            aliases=(*(_DEV + path for path in paths[1:]), *(_APP + path for path in paths)),
            handler=evaluation.evaluate, tag="evaluation", access=access, summary=summary, status=501,
            errors=(NotOffered,),
        )
        for method, access, summary, *paths in _EVALUATION
    ),
    Endpoint(
        method="GET", path=_DEV + "/builder", aliases=("/builder/app/{app_name}",), handler=web_page.get_builder_file,
        tag="web page", access="read", summary="An agent's file for the visual editor: none", media_type="text/plain",
    ),
    Endpoint(
        method="POST", path=_DEV + "/builder/save", aliases=("/builder/save",), handler=web_page.save_builder_files,
        tag="web page", access="manage", summary="Save edited agents", status=501, errors=(NotOffered,),
    ),
    Endpoint(
        method="POST", path=_DEV + "/builder/cancel", aliases=("/builder/app/{app_name}/cancel",),
        handler=web_page.cancel_builder_draft, tag="web page", access="manage", summary="Drop a draft", replies=bool,
    ),
    Endpoint(
        method="GET", path="/config/telemetry", handler=web_page.get_telemetry, tag="web page", access="open",
        summary="Whether the web page reports its use", replies=web_page.TelemetryConsent,
    ),
    Endpoint(
        method="POST", path="/config/telemetry", handler=web_page.set_telemetry, tag="web page", access="open",
        summary="Set the consent to usage reports; the server sends none", body=web_page.TelemetryConsent,
        replies=web_page.TelemetryConsent, errors=(CallerError,),
        headers=(_CONSENT,),
    ),
    Endpoint(
        method="POST", path="/agent-identity/finalize", handler=web_page.finalize_identity, tag="web page",
        access="run", summary="End a cloud's consent flow", body=web_page.FinalizeIdentityRequest, status=501,
        errors=(NotOffered,),
    ),
    Endpoint(
        method="GET", path="/dev-ui/config", handler=web_page.get_logo, tag="web page", access="open",
        summary="The web page's logo", replies=web_page.LogoConfig,
    ),
    Endpoint(
        method="GET", path="/dev-ui/assets/config/runtime-config.json", handler=web_page.get_runtime_config,
        tag="web page", access="open", summary="Configuration of the web page", replies=web_page.RuntimeConfig,
    ),
    Endpoint(
        method="GET", path="/sign-in", handler=server.sign_in_page, tag="server", access="open",
        summary="Page to sign in with a key", media_type="text/html",
    ),
    Endpoint(
        method="POST", path="/sign-in", handler=server.sign_in, tag="server", access="open",
        summary="Store a key in a cookie; an empty key deletes the cookie", body=server.SignInRequest, replies=None,
        errors=(InvalidRequest, Unauthenticated, Unavailable),
    ),
    Endpoint(
        method="GET", path="/", aliases=("/dev-ui",), handler=server.redirect, tag="server", access="open",
        summary="Redirects any method to the web page", status=307, takes_any_method=True,
    ),
    Endpoint(
        method="GET", path="/dev-ui/", handler=server.dev_ui_page, tag="server", access="open", summary="The web page",
        media_type="text/html",
    ),
)  # fmt: skip

SOCKETS: tuple[Endpoint, ...] = (
    Endpoint(
        method="WEBSOCKET", path="/run_live", aliases=("/run-live",), handler=live.run_live, tag="runs", access="run",
        summary="Live conversation with an agent: sends LiveRequests and audio, receives events",
        query=(
            Query(name="app_name", type=str, description="Optional if the server has a default app."),
            Query(name="user_id", type=str, description="Required."),
            Query(name="session_id", type=str, description="Required."),
            Query(
                name="modalities", type=list[live.Modality], is_repeatable=True,
                description="Response modalities of the model; AUDIO by default.",
            ),
            Query(name="proactive_audio", type=bool, description="The model may stay silent."),
            Query(name="enable_affective_dialog", type=bool, description="The model adapts to the tone of voice."),
            Query(name="enable_session_resumption", type=bool, description="Request handles for session resumption."),
            Query(name="explicit_vad_signal", type=bool, description="Report when the user starts and stops speaking."),
            Query(name="save_live_blob", type=bool, default=False, description="Save the audio as artifacts."),
            Query(
                name="binary_mime_type", type=str, default=live.MICROPHONE,
                description="Media type of binary frames.",
            ),
            Query(
                name="after", type=Count,
                description="Sequence number (`seq`) of the last event seen: stored events after it are sent first.",
            ),
        ),
        errors=(AppNotNamed, AppNotFound, AppLoadError, SessionNotFound, SessionFull, TooManyRuns, Unavailable),
    ),
)  # fmt: skip
"""The endpoints that are WebSockets. Source: ADK's `/run_live`."""
