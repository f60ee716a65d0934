"""The synchronous client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from greenroom.client.async_client import DEFAULT_URL, AsyncClient
from greenroom.client.run_stream import RunStream
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.run import Run

P = ParamSpec("P")
T = TypeVar("T")


class _LoopThread:
    """An event loop in its own thread, so that it can be used in threads with a running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="greenroom-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self.is_closed:
            coroutine.close()
            raise RuntimeError("The client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, too
            future.cancel()
            raise

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingRunStream:
    """`RunStream` as a synchronous iterator."""

    def __init__(self, stream: RunStream, loop: _LoopThread) -> None:
        self._stream = stream
        self._events = aiter(stream)
        self._loop = loop

    @property
    def run(self) -> Run:
        """The last received record of the run."""
        return self._stream.run

    @property
    def requests(self) -> list[FunctionCall]:
        """Requests for input in the events read so far, such as approvals."""
        return self._stream.requests

    @property
    def last_seq(self) -> int | None:
        """The sequence number up to which the log was read; None if nothing was."""
        return self._stream.last_seq

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        async def following() -> Event | None:
            return await anext(self._events, None)

        event = self._loop.run(following())
        if event is None:
            raise StopIteration
        return event

    def wait(self) -> Run:
        """Reads to the end and returns the record. Raises the error that the run failed with."""
        return self._loop.run(self._stream.wait())

    def close(self) -> None:
        """Stops reading. The run continues."""
        self._loop.run(self._stream.aclose())


def _synchronous(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    @wraps(method)
    def wait(self: Client, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._asynchronous, *args, **kwargs))

    return wait


def _streaming(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, RunStream]],
) -> Callable[Concatenate[Client, P], BlockingRunStream]:
    @wraps(method)
    def stream(self: Client, *args: P.args, **kwargs: P.kwargs) -> BlockingRunStream:
        return BlockingRunStream(self._loop.run(method(self._asynchronous, *args, **kwargs)), self._loop)

    return stream


class Client:
    """The synchronous `AsyncClient`: the same operations with the same arguments. Thread-safe."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 60.0,
        retry_seconds: float = 60.0,
    ) -> None:
        """Takes the arguments of AsyncClient."""
        self._asynchronous = AsyncClient(
            url, api_key=api_key, headers=headers, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds
        )
        self._loop = _LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Runs continue."""
        if not self._loop.is_closed:
            self._loop.run(self._asynchronous.close())
            self._loop.close()

    list_apps = _synchronous(AsyncClient.list_apps)
    get_app_info = _synchronous(AsyncClient.get_app_info)
    create_session = _synchronous(AsyncClient.create_session)
    get_session = _synchronous(AsyncClient.get_session)
    fork_session = _synchronous(AsyncClient.fork_session)
    edit_event = _synchronous(AsyncClient.edit_event)
    list_sessions = _synchronous(AsyncClient.list_sessions)
    list_events = _synchronous(AsyncClient.list_events)
    update_state = _synchronous(AsyncClient.update_state)
    set_title = _synchronous(AsyncClient.set_title)
    rewind_session = _synchronous(AsyncClient.rewind_session)
    preview_retention = _synchronous(AsyncClient.preview_retention)
    delete_user = _synchronous(AsyncClient.delete_user)
    export_user = _synchronous(AsyncClient.export_user)
    delete_session = _synchronous(AsyncClient.delete_session)
    run = _streaming(AsyncClient.run)
    answer = _streaming(AsyncClient.answer)
    approve = _streaming(AsyncClient.approve)
    refuse = _streaming(AsyncClient.refuse)
    follow = _streaming(AsyncClient.follow)
    get_run = _synchronous(AsyncClient.get_run)
    get_usage = _synchronous(AsyncClient.get_usage)
    get_statistics = _synchronous(AsyncClient.get_statistics)
    get_load = _synchronous(AsyncClient.get_load)
    list_runs = _synchronous(AsyncClient.list_runs)
    list_waiting_runs = _synchronous(AsyncClient.list_waiting_runs)
    list_credentials = _synchronous(AsyncClient.list_credentials)
    revoke_credential = _synchronous(AsyncClient.revoke_credential)
    cancel_run = _synchronous(AsyncClient.cancel_run)
    retry_run = _synchronous(AsyncClient.retry_run)
    retry_runs = _synchronous(AsyncClient.retry_runs)
    list_webhooks = _synchronous(AsyncClient.list_webhooks)
    add_webhook = _synchronous(AsyncClient.add_webhook)
    delete_webhook = _synchronous(AsyncClient.delete_webhook)
    list_deliveries = _synchronous(AsyncClient.list_deliveries)
    redeliver = _synchronous(AsyncClient.redeliver)
    test_webhook = _synchronous(AsyncClient.test_webhook)
    list_app_webhooks = _synchronous(AsyncClient.list_app_webhooks)
    get_app_webhook = _synchronous(AsyncClient.get_app_webhook)
    put_app_webhook = _synchronous(AsyncClient.put_app_webhook)
    delete_app_webhook = _synchronous(AsyncClient.delete_app_webhook)

    signal_run = _synchronous(AsyncClient.signal_run)
    give_feedback = _synchronous(AsyncClient.give_feedback)
    delete_feedback = _synchronous(AsyncClient.delete_feedback)
    list_feedback = _synchronous(AsyncClient.list_feedback)
    make_case = _synchronous(AsyncClient.make_case)
    add_feedback_cases = _synchronous(AsyncClient.add_feedback_cases)
    list_eval_set_versions = _synchronous(AsyncClient.list_eval_set_versions)
    list_memories = _synchronous(AsyncClient.list_memories)
    change_memory = _synchronous(AsyncClient.change_memory)
    delete_memory = _synchronous(AsyncClient.delete_memory)
    list_settings = _synchronous(AsyncClient.list_settings)
    list_budgets = _synchronous(AsyncClient.list_budgets)
    put_budget = _synchronous(AsyncClient.put_budget)
    delete_budget = _synchronous(AsyncClient.delete_budget)
    get_me = _synchronous(AsyncClient.get_me)
    list_keys = _synchronous(AsyncClient.list_keys)
    create_key = _synchronous(AsyncClient.create_key)
    get_key = _synchronous(AsyncClient.get_key)
    revoke_key = _synchronous(AsyncClient.revoke_key)
    list_service_accounts = _synchronous(AsyncClient.list_service_accounts)
    get_service_account = _synchronous(AsyncClient.get_service_account)
    put_service_account = _synchronous(AsyncClient.put_service_account)
    delete_service_account = _synchronous(AsyncClient.delete_service_account)
    list_roles = _synchronous(AsyncClient.list_roles)
    put_role = _synchronous(AsyncClient.put_role)
    delete_role = _synchronous(AsyncClient.delete_role)
    create_schedule = _synchronous(AsyncClient.create_schedule)
    next_times = _synchronous(AsyncClient.next_times)
    list_schedules = _synchronous(AsyncClient.list_schedules)
    get_schedule = _synchronous(AsyncClient.get_schedule)
    replace_schedule = _synchronous(AsyncClient.replace_schedule)
    delete_schedule = _synchronous(AsyncClient.delete_schedule)
    pause_schedule = _synchronous(AsyncClient.pause_schedule)
    resume_schedule = _synchronous(AsyncClient.resume_schedule)
    run_schedule = _synchronous(AsyncClient.run_schedule)
    list_schedule_runs = _synchronous(AsyncClient.list_schedule_runs)
    publish_version = _synchronous(AsyncClient.publish_version)
    list_app_versions = _synchronous(AsyncClient.list_app_versions)
    get_app_version = _synchronous(AsyncClient.get_app_version)
    compare_app_versions = _synchronous(AsyncClient.compare_app_versions)
    get_version_scores = _synchronous(AsyncClient.get_version_scores)
    set_traffic = _synchronous(AsyncClient.set_traffic)
    delete_app_version = _synchronous(AsyncClient.delete_app_version)
    list_audit_entries = _synchronous(AsyncClient.list_audit_entries)
    list_requests = _synchronous(AsyncClient.list_requests)
    get_request = _synchronous(AsyncClient.get_request)
    answer_request = _synchronous(AsyncClient.answer_request)
    delegate_request = _synchronous(AsyncClient.delegate_request)
    get_session_of_request = _synchronous(AsyncClient.get_session_of_request)
    list_artifacts = _synchronous(AsyncClient.list_artifacts)
    save_artifact = _synchronous(AsyncClient.save_artifact)
    load_artifact = _synchronous(AsyncClient.load_artifact)
    list_versions = _synchronous(AsyncClient.list_versions)
    delete_artifact = _synchronous(AsyncClient.delete_artifact)
    add_session_to_memory = _synchronous(AsyncClient.add_session_to_memory)
