"""The Python client of greenroom servers: typed calls, and streams that resume automatically.

`async_client`: the client. `client`: the same calls without `await`. `run_stream`: the events of a run.
Internal: `connection`, which sends requests and retries them, and `problem`, which turns error documents into errors.
"""
