"""The method of the benchmarks, as RESULTS.md explains it above the figures."""

METHOD = [
    "Written by `make bench`. Every cell is the median of the rounds, in which the two servers are driven in turn; "
    "*times better* is the ratio of the medians.",
    "Each server is one process on one core. One load generator on another core (where there are two) drives both with "
    "the same prepared bytes over kept-alive connections, each sending its next request when the last one is answered.",
    "Both host the same apps (`benchmarks/apps`; for workflows `benchmarks/workflows`). Their models answer inside the "
    "process, at once or after a fixed wait; streamed chunks come in a loop turn of their own each.",
    "Turns are made in new sessions, at most 10 in each, so that the cost of a stored history stays out; it has a "
    "table of its own.",
    "Server CPU is user and system time from `/proc`, all threads and child processes.",
    "ADK runs as `adk api_server --no-reload --log_level warning --artifact_service_uri memory:// "
    "--memory_service_uri memory:// --session_service_uri memory://` or `sqlite:////…`, in an environment with what "
    "installing `google-adk` brings. Its access log, its asyncio loop and its in-memory tracing have no option. "
    "*ADK tuned by hand* adds uvloop, httptools and the extra `a2a`, without which each turn tries and fails to import "
    "it, and sets `OTEL_SDK_DISABLED=true`.",
    "greenroom runs as `greenroom serve --session-service memory://` or `sqlite:////…`. SQLite is on the local disk, "
    "with each server's own settings.",
]
