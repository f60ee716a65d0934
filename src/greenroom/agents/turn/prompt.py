"""Builds the prompt from the log: the part of the conversation that an agent's model sees.

The prompt of a log is computed once and then only extended, so that a turn's cost does not grow with the history. It is
kept with the log from which it was computed.

Source: ADK's contents processor. Calls are always followed by one content with all their responses; a call that was
never answered (crash, cancelled run) is answered here, so that no provider refuses the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from greenroom.log.calls import INTERRUPTED, PENDING
from greenroom.log.compaction import Compacted, compacted
from greenroom.log.state import kept_events, log_state_of
from greenroom.records import wire
from greenroom.records.content import QUOTED_IS_DATA, Content, FunctionCall, FunctionResponse, Part, quoted
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUESTS, requests_in
from greenroom.records.steering import is_steering

SAVED_LIVE_AUDIO = "/_adk_live/"
"""Part of the URI of a live run's saved audio, of which models read the transcript."""

_NOTHING = Part()


@dataclass(slots=True)
class _Calls:
    """A content with function calls, and the position of its responses in the prompt."""

    calls: list[FunctionCall]
    long_running: frozenset[str]
    at: int
    answers: dict[str, Part] = field(default_factory=dict[str, Part])

    @property
    def is_answered(self) -> bool:
        return len(self.answers) == len(self.calls)

    def responses(self) -> Content:
        return Content(
            role="user", parts=[self.answers.get(call.id or "") or self._filler(call) for call in self.calls]
        )

    def _filler(self, call: FunctionCall) -> Part:
        response = PENDING if call.id in self.long_running else INTERRUPTED
        return Part(function_response=FunctionResponse(id=call.id, name=call.name, response=dict(response)))


@dataclass(eq=False)
class _Prompt:
    """The contents that an agent sees of the first `seen` events of a log, without those at indexes in `rewound`, and
    with summaries in place of compacted events.

    node_path: of an agent that is a node; it does not see the events of other nodes. just_answered: the calls that the
    newest message answers. has_words: the newest message also has text.
    """

    agent: str
    branch: str | None
    scope: str | None = None
    _: KW_ONLY
    thoughts: bool = False
    node_path: str | None = None
    rewound: frozenset[int] = frozenset()
    compacted: Compacted = field(default_factory=Compacted)
    seen: int = 0
    contents: CopyOnWriteList[Content] = field(default_factory=CopyOnWriteList[Content])
    calls_by_id: dict[str, _Calls] = field(default_factory=dict[str, _Calls])
    last_calls: _Calls | None = None
    just_answered: _Calls | None = None
    has_words: bool = False

    def __post_init__(self) -> None:
        self.hidden = self.compacted.hidden
        if self.rewound:
            self.hidden |= self.rewound
        self._summaries = list(self.compacted.summaries)

    def read(self, events: Iterable[Event]) -> None:
        for event in events:
            while self._summaries and self._summaries[0].last <= self.seen:
                self._add_summary(self._summaries.pop(0).event)
            if self.seen not in self.hidden:
                self._add(event)
            self.seen += 1

    def _add_summary(self, event: Event) -> None:
        """A summary is shown as the agent's own words: as another agent's, it would be quoted."""
        content = event.actions.compaction.compacted_content if event.actions.compaction is not None else None
        if content is not None and content.parts and _is_visible(event, content, event.author, self.branch, self.scope):
            self._begin_content()
            self.contents.append(Content(role="model", parts=content.parts))

    def snapshot(self) -> CopyOnWriteList[Content]:
        contents = self.contents.snapshot()
        answered = self.just_answered
        if answered is not None and not self.has_words and answered.at + 2 < len(contents):
            # The newest message answers an older call: the model continues from there.
            return CopyOnWriteList(contents[: answered.at + 2])
        if self.last_calls is not None and len(contents) == self.last_calls.at + 1:
            contents.append(self.last_calls.responses())
        return contents

    def _add(self, event: Event) -> None:
        content = event.content if event.content is not None else _spoken(event)
        if event.node_info is not None and event.author != self.agent and _is_below(event.node_info.path, self.agent):
            return
        if self.node_path is not None and _is_of_other_node(event.node_path, self.node_path):
            return
        if content is None or not content.parts or not _is_visible(event, content, self.agent, self.branch, self.scope):
            return
        responses = event.get_function_responses()
        if responses and event.author in ("user", self.agent):
            self._add_responses(content, responses)
            if event.author == "user" and event.isolation_scope == self.scope:
                self._add_words(content)
            return

        self._begin_content()
        if event.author not in ("user", self.agent):
            content = _as_context(event.author, content, thoughts=self.thoughts)
            if content is not None:
                self.contents.append(content)
            return

        self.contents.append(content if content.role else Content(role="user", parts=content.parts))
        calls = event.get_function_calls()
        if calls:
            long_running = frozenset(event.long_running_tool_ids or ())
            self.last_calls = _Calls(calls, long_running, at=len(self.contents) - 1)
            for call in calls:
                if call.id:
                    self.calls_by_id[call.id] = self.last_calls

    def _begin_content(self) -> None:
        self._close_calls()
        self.just_answered = None
        self.has_words = False

    def _add_words(self, content: Content) -> None:
        """Adds the words of a message that answers calls, after the responses."""
        words = [part for part in content.parts or () if part.function_response is None]
        if words:
            self._close_calls()
            self.has_words = True
            self.contents.append(Content(role="user", parts=words))

    def _close_calls(self) -> None:
        """Something follows the newest calls: give them their responses now, made up where there are none."""
        if self.last_calls is not None and len(self.contents) == self.last_calls.at + 1:
            self.contents.append(self.last_calls.responses())
        self.last_calls = None

    def _add_responses(self, content: Content, responses: list[FunctionResponse]) -> None:
        changed: dict[int, _Calls] = {}
        for part in content.parts or ():
            response = part.function_response
            entry = self.calls_by_id.get(response.id or "") if response is not None else None
            if response is None or entry is None:
                continue
            entry.answers[response.id or ""] = part
            changed[entry.at] = entry
            if self.just_answered is None or self.just_answered.at < entry.at:
                self.just_answered = entry
        shown = {entry.at + 1: entry for entry in changed.values() if entry.at + 1 < len(self.contents)}
        if shown:  # the contents were returned to callers, which keep them
            contents = list(self.contents)
            for at, entry in shown.items():
                contents[at] = entry.responses()
            self.contents = CopyOnWriteList(contents)
        entry = self.last_calls
        if entry is not None and entry.is_answered and entry.at + 1 == len(self.contents):
            whole = len(responses) == len(content.parts or ()) == len(entry.calls)
            in_order = whole and all(r.id == c.id for r, c in zip(responses, entry.calls, strict=True))
            self.contents.append(content if in_order else entry.responses())


def prompt_contents(
    events: Sequence[Event],
    *,
    agent: str,
    branch: str | None,
    include: str,
    thoughts: bool = False,
    scope: str | None = None,
    request: Content | None = None,
    node_path: str | None = None,
) -> CopyOnWriteList[Content]:
    """Returns the contents for the next request of this agent. The list is the caller's own; the contents are the
    log's.

    thoughts: include thoughts of other agents. node_path: see `_Prompt`. scope, request: the scope and the request of
    an agent that runs as a tool; its events are a list that is read again for each request, since such runs are short
    and soon forgotten.
    """
    if include == "default" and isinstance(events, CopyOnWriteList):
        rewound = log_state_of(events).rewound
        summaries = compacted(events)
        key = (_Prompt, agent, branch, thoughts, node_path)
        prompt = events.derived.get(key)
        if (
            prompt is None
            or prompt.seen > len(events)
            or prompt.rewound != rewound
            or prompt.compacted is not summaries
        ):
            prompt = _Prompt(
                agent, branch, thoughts=thoughts, node_path=node_path, rewound=rewound, compacted=summaries
            )
            if len(events):
                events.derived[key] = prompt
        prompt.read(events[prompt.seen :])
        return prompt.snapshot()

    if isinstance(events, CopyOnWriteList):
        events = kept_events(events)
    begin = _start_of_this_turn(events, agent, branch, scope) if include == "none" else 0
    prompt = _Prompt(agent, branch, scope, thoughts=thoughts)
    if begin == 0 and request is not None:
        prompt.contents.append(request)
    prompt.read(events[begin:])
    return prompt.snapshot()


def _start_of_this_turn(events: Sequence[Event], agent: str, branch: str | None, scope: str | None) -> int:
    """Index of the newest message from outside this agent; from there on it sees its own calls."""
    answered: set[str] = set()
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.content is None or not _is_visible(event, event.content, agent, branch, scope):
            continue
        if event.author == agent:
            answered.difference_update(call.id or "" for call in event.get_function_calls())
            if event.get_function_calls() and not answered:
                continue
        elif event.get_function_responses() and event.author == "user":
            shown = (one for one in event.get_function_responses() if one.name not in REQUESTS)
            answered.update(response.id or "" for response in shown)
        elif not answered and not is_steering(event):
            return index
    return 0


def _is_visible(event: Event, content: Content, agent: str, branch: str | None, scope: str | None) -> bool:
    """Whether an agent sees an event. Of others, content without a role is not shown. Source: ADK."""
    if not content.role and event.author not in ("user", agent):
        return False
    if event.isolation_scope != scope and not (event.author == "user" and event.get_function_responses()):
        return False
    if event.branch and branch and event.branch != branch and not branch.startswith(event.branch + "."):
        return False
    if event.long_running_tool_ids and requests_in(event):
        return False
    says_something = False
    for part in content.parts or ():
        response = part.function_response
        if response is not None and event.author == "user" and response.name in REQUESTS:
            continue
        says_something = says_something or bool(part.text) or not _is_empty(part)
    return says_something


def _is_of_other_node(path: str, node_path: str) -> bool:
    """Whether a path is neither the node's, nor above or below it."""
    if not path or path == node_path:
        return False
    return not path.startswith(f"{node_path}/") and not node_path.startswith(f"{path}/")


def _is_below(path: str, agent: str) -> bool:
    """Whether a node wrote it that a tool of this agent runs; the agent sees the tool's result."""
    above = path.rpartition("/")[0]
    return f"/{agent}@" in f"/{above}"


def _spoken(event: Event) -> Content | None:
    """Returns the transcription that an event of a live run holds."""
    for said, role in ((event.input_transcription, "user"), (event.output_transcription, "model")):
        if said is not None and said.text:
            return Content(role=role, parts=[Part(text=said.text)])
    return None


def _is_empty(part: Part) -> bool:
    if part.file_data is not None and SAVED_LIVE_AUDIO in (part.file_data.file_uri or ""):
        return True
    return part == _NOTHING or (part.text == "" and part.thought_signature is None)


def _as_context(author: str, content: Content, *, thoughts: bool) -> Content | None:
    """Another agent's words and calls, quoted as context: a model must not take them for its own."""
    parts: list[Part] = []
    for part in content.parts or ():
        if part.thought:
            if thoughts and part.text:
                parts.append(Part(text=f"[{author}] thought: {quoted(part.text)}"))
        elif part.text:
            parts.append(Part(text=f"[{author}] said: {quoted(part.text)}"))
        elif part.function_call is not None:
            arguments = wire.encode(part.function_call.args or {}).decode()
            parts.append(Part(text=f"[{author}] called the tool `{part.function_call.name}` with {quoted(arguments)}"))
        elif part.function_response is not None:
            response = wire.encode(part.function_response.response or {}).decode()
            parts.append(Part(text=f"[{author}] got from `{part.function_response.name}`: {quoted(response)}"))
            for media in part.function_response.parts or ():
                parts.append(Part(inline_data=media.inline_data, file_data=media.file_data))
        else:
            parts.append(part)
    if not parts:
        return None
    return Content(role="user", parts=[Part(text=QUOTED_IS_DATA), *parts])
