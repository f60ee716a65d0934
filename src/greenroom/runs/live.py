"""A live run, as its engine sees it: it has no request to begin again from, and ends with its process."""

from __future__ import annotations

import time
from typing import NamedTuple

from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.run import Caller, Run, RunConfig, RunStatus
from greenroom.records.session import SessionKey


class LiveInput(NamedTuple):
    requests: LiveRequestQueue
    run_config: RunConfig


def new_live_run(key: SessionKey, *, after_seq: int, traceparent: str | None, caller: Caller | None = None) -> Run:
    return Run(
        id=new_invocation_id(),
        app_name=key.app_name,
        user_id=key.user_id,
        session_id=key.session_id,
        status=RunStatus.QUEUED,
        created_at=time.time(),
        after_seq=after_seq,
        message_after_seq=after_seq,
        traceparent=traceparent,
        caller=caller,
        is_live=True,
    )
