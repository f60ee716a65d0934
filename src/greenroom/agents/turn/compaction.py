"""Compaction of a session's history: which events are summarized, and when. With an interval of 2 and an overlap of 1:

    after e-1, e-2    a summary of e-1 and e-2
    after e-3         nothing
    after e-4         a summary of e-2 to e-4; both summaries count

A summary that is made because a prompt is too long starts with the earlier summaries, and replaces them. An open call
is never summarized, nor anything after it, and a call is never separated from its responses.

Source: ADK's Python runner.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.turn.prompt import prompt_contents
from greenroom.invocation.compaction import EventsCompactionConfig, LlmEventSummarizer
from greenroom.invocation.context import InvocationContext, Services
from greenroom.log.compaction import (
    COMPACTED,
    CompactedRange,
    Summary,
    call_groups,
    closed_prefix,
    compacted,
    range_of,
)
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event

_log = logging.getLogger("greenroom.agents")

_CHARACTERS_PER_TOKEN = 4


async def compact_before_call(agent: BaseLlmAgent, ctx: InvocationContext) -> None:
    """Summarizes older events if the agent's prompt has reached the app's `token_threshold`. Agents that don't read the
    session's history are left alone."""
    config = ctx.services.compaction
    store = ctx.store
    if config is None or config.token_threshold is None or store is None or ctx.isolation_scope is not None:
        return
    if agent.include_contents == "none" or (ctx.node_runner is not None and agent.mode == "single_turn"):
        return
    if not _is_too_long(config, ctx.session.events, agent.name, ctx.branch):
        return
    async with ctx.compaction_lock:  # parallel branches share the history
        log = ctx.session.events
        if _is_too_long(config, log, agent.name, ctx.branch):
            chosen = _Candidates(log, ctx.invocation_id).before_tail(max(config.event_retention_size or 0, 1))
            event = await _summary_of(chosen, config, agent.root_agent, ctx.services)
            if event is not None:
                await store(event)


async def compact_after_run(
    config: EventsCompactionConfig, root: BaseAgent, services: Services, log: CopyOnWriteList[Event]
) -> Event | None:
    """Returns the event to store after a run, if a summary is due."""
    candidates = _Candidates(log)
    chosen: _Candidates | None = None
    if config.token_threshold is not None and _is_too_long(config, log, None, None, prompt_of=root.name):
        chosen = candidates.before_tail(config.event_retention_size or 0)
    event = await _summary_of(chosen, config, root, services)
    if event is None and config.compaction_interval is not None:
        event = await _summary_of(
            candidates.window(config.compaction_interval, config.overlap_size or 0), config, root, services
        )
    return event


def _is_too_long(
    config: EventsCompactionConfig,
    log: CopyOnWriteList[Event],
    agent: str | None,
    branch: str | None,
    *,
    prompt_of: str = "",
) -> bool:
    """True if the prompt exceeds the threshold, by the count in the agent's newest reply since the last compaction, or
    by an estimate.

    agent: the agent whose replies count.
    """
    threshold = config.token_threshold or 0
    rewound = log_state_of(log).rewound
    for index in range(len(log) - 1, -1, -1):
        event = log[index]
        if event.actions.compaction is not None:
            break
        tokens = event.usage_metadata.prompt_token_count if event.usage_metadata is not None else None
        if tokens is None or index in rewound or event.isolation_scope is not None:
            continue
        if agent is None or event.author == agent:
            return tokens >= threshold
    contents = prompt_contents(log, agent=agent or prompt_of, branch=branch, include="default")
    return _characters(contents) >= threshold * _CHARACTERS_PER_TOKEN


def _characters(contents: Iterable[Content | None]) -> int:
    count = 0
    for content in contents:
        for part in (content.parts if content is not None else None) or ():
            call = part.function_call
            response = part.function_response
            count += len(part.text or "")
            count += len(wire.encode(call.args)) if call is not None else 0
            count += len(wire.encode(response.response)) if response is not None else 0
    return count


class _Candidates:
    """The events of a log that may be summarized, and the chosen ones.

    raw: indexes of the events that no summary replaces; indexes: of the chosen events. earlier: summaries that the new
    one replaces.
    """

    def __init__(self, log: CopyOnWriteList[Event], run_id: str | None = None) -> None:
        """Collects the candidates. `run_id` is the run in progress."""
        self.log = log
        self.run_id = run_id
        self.known = compacted(log)
        self._rewound = log_state_of(log).rewound
        self.raw = [index for index in range(len(log)) if index not in self.known.hidden and self._is_raw(index)]
        self.indexes: Sequence[int] = ()
        self.earlier: Sequence[Summary] = ()
        self.needed: list[int] = []

    def _is_raw(self, index: int) -> bool:
        event = self.log[index]
        return event.actions.compaction is None and event.isolation_scope is None and index not in self._rewound

    def before_tail(self, count: int) -> _Candidates | None:
        """Chooses all but the newest `count` events, and the earlier summaries."""
        if len(self.raw) <= count:
            return None
        closed = self._close(self.raw[: len(self.raw) - count])
        if closed is not None:
            self.earlier = [one for one in self.known.summaries if one.last <= self.indexes[-1]]
        return closed

    def window(self, interval: int, overlap: int) -> _Candidates | None:
        """The runs since the last summary, if there are `interval` of them, and the `overlap` runs before them."""
        new = {self.log[index].invocation_id for index in self.raw if self.log[index].content is not None}
        if len(new) < interval:
            return None
        first: dict[str, int] = {}
        for index, event in enumerate(self.log):
            if self._is_raw(index):
                first.setdefault(event.invocation_id, index)
        runs = list(first)
        begin = max(min(runs.index(run) for run in new) - overlap, 0)
        chosen = range(first[runs[begin]], self.raw[-1] + 1)
        closed = self._close([index for index in chosen if self._is_raw(index)])
        if closed is not None and overlap:
            ended = list(dict.fromkeys(self.log[index].invocation_id for index in self.indexes))
            self.needed = [first[run] for run in ended[-overlap:]]
        return closed

    def _close(self, indexes: list[int]) -> _Candidates | None:
        """Removes the events after an open call or a call that is answered later. None if too few events remain."""
        groups = call_groups(self.log, run_id=self.run_id)
        end = closed_prefix(groups, indexes[0], indexes[-1] + 1)
        self.indexes = [index for index in indexes if index < end]
        newest = self.known.summaries[-1].event.actions.compaction if self.known.summaries else None
        vanishing = _characters(self.log[index].content for index in self.indexes if index not in self.known.hidden)
        if not self.indexes or vanishing <= _characters([newest.compacted_content] if newest is not None else ()):
            return None
        return self

    def events(self) -> list[Event]:
        return [*map(_as_content, self.earlier), *(self.log[index] for index in self.indexes)]

    def range(self, end_timestamp: float) -> CompactedRange | None:
        """The events up to that time. Loads the events that a run still needs, and none that a rewind took back."""
        indexes = [index for index in self.indexes if self.log[index].timestamp <= end_timestamp]
        if not indexes:
            return None
        log = self.log
        log_state = log_state_of(self.log)
        last = closed_prefix(call_groups(log, run_id=self.run_id), indexes[0], indexes[-1] + 1) - 1
        needed = [last + 1, *self.needed, *log_state.first_of_waiting_runs()]
        if self.run_id is not None and log_state.has_run(self.run_id):
            needed.append(log_state.run(self.run_id).indexes[0])
        load = min(needed)

        while load in self._rewound and load > 0:
            load -= 1
        taken_back = [log[index].id for index in sorted(self._rewound) if log[index].actions.compaction is not None]
        for one in self.known.summaries:
            own = range_of(one.event)
            taken_back += own.taken_back if own is not None else ()

        return CompactedRange(
            first_seq=min([indexes[0], *(one.first for one in self.earlier)]) + log.skipped + 1,
            last_seq=last + log.skipped + 1,
            last_id=log[last].id,
            load_seq=load + log.skipped + 1,
            taken_back=list(dict.fromkeys(taken_back)),
        )


def _as_content(summary: Summary) -> Event:
    """Makes an earlier summary the first event to summarize, with the time of the first event that it replaces."""
    compaction = summary.event.actions.compaction
    assert compaction is not None
    parts = [part for part in compaction.compacted_content.parts or () if not part.thought]
    return Event(
        author="model", timestamp=compaction.start_timestamp, content=Content(role="model", parts=parts), branch=None
    )


async def _summary_of(
    chosen: _Candidates | None, config: EventsCompactionConfig, root: BaseAgent, services: Services
) -> Event | None:
    if chosen is None:
        return None
    if config.summarizer is None and isinstance(root, BaseLlmAgent):
        config.summarizer = LlmEventSummarizer(root.model_or(services.default_model))
    try:
        event = await config.summarizer.maybe_summarize_events(events=chosen.events()) if config.summarizer else None
    except Exception:  # the history stays as it is, and is summarized later
        _log.exception("events of app %r could not be summarized", root.name)
        return None
    compaction = event.actions.compaction if event is not None else None
    replaced = chosen.range(compaction.end_timestamp) if compaction is not None else None
    if event is None or replaced is None:
        return None
    event.custom_metadata = {**(event.custom_metadata or {}), COMPACTED: msgspec.to_builtins(replaced)}
    return event
