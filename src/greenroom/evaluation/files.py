"""Evaluation sets and results as JSON files, in the places and with the names of ADK.

Sets: `{apps}/{app}/{set}.evalset.json`; their versions, which ADK doesn't have:
`{apps}/{app}/.adk/eval_sets/{set}.versions.jsonl`. Results:
`{apps}/{app}/.adk/eval_history/{name}.evalset_result.json`. Sessions to replay as tests:
`{apps}/{app}/tests/{name}.json`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import msgspec

from greenroom.errors import CallerError, InvalidRequest, NotFound
from greenroom.evaluation.records import (
    DEFAULT_USER,
    EvalCase,
    EvalSet,
    EvalSetResult,
    IntermediateData,
    Invocation,
    SessionInput,
    check_id,
)
from greenroom.evaluation.set_history import SetHistory
from greenroom.records import wire
from greenroom.records.base import JsonObject, PydanticMethods, Record, empty_map
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.eval_cases import EvalSetVersion
from greenroom.records.event import Event
from greenroom.records.session import Session
from greenroom.records.state import apply_delta

T = TypeVar("T")

_log = logging.getLogger("greenroom.evaluation")

_results_lock = threading.Lock()

SET_SUFFIX = ".evalset.json"
RESULT_SUFFIX = ".evalset_result.json"
HISTORY = Path(".adk") / "eval_history"
_VERSIONS = Path(".adk") / "eval_sets"


class KeptSession(Record, kw_only=True):
    """A session that is kept as a test. ADK's web page keeps the events alone."""

    events: list[Event] = msgspec.field(default_factory=list[Event])
    """The events of the conversation."""
    id: str | None = None
    """The session's id."""
    app_name: str | None = None
    """The session's app."""
    user_id: str | None = None
    """The session's user."""
    state: JsonObject | None = None
    """The state at the end; by default the one that the events lead to."""
    last_update_time: float | None = None
    """Unix seconds."""

    def session(self, *, app_name: str, name: str) -> Session:
        """Returns a complete session. Missing values come from the events, the app's name and the test's name."""
        state = self.state
        if state is None:
            state = empty_map()
            for event in self.events:
                apply_delta(state, event.actions.state_delta)

        last_update_time = self.last_update_time
        if last_update_time is None:
            if self.events:
                last_update_time = self.events[-1].timestamp
            else:
                last_update_time = 0.0

        return Session(
            id=self.id or name.removesuffix(".json"),
            app_name=self.app_name or app_name,
            user_id=self.user_id or DEFAULT_USER,
            state=state,
            events=CopyOnWriteList(self.events),
            last_update_time=last_update_time,
        )


class EvalFiles:
    """The sets and results of the apps in a folder. Changes of a set are made one after the other, in a thread; each
    makes a version of the set.
    """

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        """Finds the files of an app in `folder_of(app_name)`, which need not exist yet."""
        self._folder_of = folder_of

    async def list_sets(self, app_name: str) -> list[str]:
        return await asyncio.to_thread(_names, self._folder_of(app_name), SET_SUFFIX)

    async def get_set(self, app_name: str, set_id: str, version: int | None = None) -> EvalSet:
        """The set as it is now, or as it was in a version. Raises NotFound, InvalidRequest."""

        def get() -> EvalSet:
            eval_set = self._read(app_name, set_id)
            history = self._history(app_name, set_id)
            if version is None:
                return msgspec.structs.replace(eval_set, version=history.version_of(eval_set.eval_cases))

            cases = history.cases_of(version)
            if cases is None:
                raise NotFound(f"Evaluation set {set_id!r} has no version {version}")
            return msgspec.structs.replace(eval_set, eval_cases=cases, version=version)

        return await asyncio.to_thread(get)

    async def get_set_to_run(self, app_name: str, set_id: str, version: int | None = None) -> EvalSet:
        """Like `get_set`; a set that was edited by hand gets its version. Raises NotFound, InvalidRequest."""
        eval_set = await self.get_set(app_name, set_id, version)
        if eval_set.version is not None:
            return eval_set

        def record() -> EvalSet:
            history = self._history(app_name, set_id)
            with history.locked():
                now = self._read(app_name, set_id)
                return msgspec.structs.replace(now, version=history.record(now.eval_cases))

        return await asyncio.to_thread(record)

    async def list_versions(self, app_name: str, set_id: str) -> list[EvalSetVersion]:
        """The versions of a set, oldest first. Raises NotFound, InvalidRequest."""
        await self.get_set(app_name, set_id)
        return await asyncio.to_thread(self._history(app_name, set_id).versions)

    async def get_or_create_set(self, app_name: str, set_id: str) -> EvalSet:
        """Raises CallerError when the id can't name a file, InvalidRequest."""
        try:
            return await self.get_set(app_name, set_id)
        except NotFound:
            return await self.create_set(app_name, EvalSet(eval_set_id=set_id))

    async def create_set(self, app_name: str, eval_set: EvalSet) -> EvalSet:
        """Raises CallerError when the id is taken or can't name a file."""
        check_id(eval_set.eval_set_id, "an evaluation set")
        new = msgspec.structs.replace(
            eval_set,
            creation_timestamp=eval_set.creation_timestamp or time.time(),
            version=None,
        )

        def create() -> EvalSet:
            path = self._set_path(app_name, new.eval_set_id)
            history = self._history(app_name, new.eval_set_id)
            with history.locked():
                if path.exists():
                    raise CallerError(f"There is an evaluation set {new.eval_set_id!r} already")
                version = history.record(new.eval_cases)
                write_record(path, new)
            return msgspec.structs.replace(new, version=version)

        return await asyncio.to_thread(create)

    async def delete_set(self, app_name: str, set_id: str) -> None:
        def delete() -> None:
            self._read(app_name, set_id)
            history = self._history(app_name, set_id)
            with history.locked():
                self._set_path(app_name, set_id).unlink(missing_ok=True)
                history.delete()

        await asyncio.to_thread(delete)

    async def add_cases(self, app_name: str, set_id: str, *cases: EvalCase) -> int | None:
        """Adds cases in one version of the set, and returns it. Raises CallerError when an id is taken, InvalidRequest
        for an invalid case.
        """
        for case in cases:
            case.check()
        now = time.time()
        new = [msgspec.structs.replace(case, creation_timestamp=case.creation_timestamp or now) for case in cases]

        def add(eval_set: EvalSet) -> None:
            for case in new:
                if eval_set.case(case.eval_id) is not None:
                    raise CallerError(f"There is a case {case.eval_id!r} in {set_id!r} already")
                eval_set.eval_cases.append(case)

        return await self._change(app_name, set_id, add)

    async def replace_case(self, app_name: str, set_id: str, case: EvalCase) -> None:
        case.check()

        def replace(eval_set: EvalSet) -> None:
            eval_set.eval_cases[_index(eval_set, case.eval_id)] = case

        await self._change(app_name, set_id, replace)

    async def delete_case(self, app_name: str, set_id: str, eval_id: str) -> None:
        def delete(eval_set: EvalSet) -> None:
            del eval_set.eval_cases[_index(eval_set, eval_id)]

        await self._change(app_name, set_id, delete)

    async def get_case(self, app_name: str, set_id: str, eval_id: str) -> EvalCase:
        eval_set = await self.get_set(app_name, set_id)
        return eval_set.eval_cases[_index(eval_set, eval_id)]

    async def list_results(self, app_name: str) -> list[str]:
        return await asyncio.to_thread(_names, self._folder_of(app_name) / HISTORY, RESULT_SUFFIX)

    async def get_result(self, app_name: str, result_id: str) -> EvalSetResult:
        """Raises NotFound."""
        path = self.result_path(app_name, result_id)
        return await asyncio.to_thread(
            _read,
            path,
            EvalSetResult,
            f"Evaluation result {result_id!r}",
        )

    async def save_result(
        self,
        app_name: str,
        result: EvalSetResult,
        *,
        max_results: int | None = None,
        max_bytes: int | None = None,
    ) -> bool:
        """Stores a result; without the sessions of its cases where it is larger than `max_bytes`
        with them.

        max_results: the oldest results of the app beyond this number are deleted. Both limits: None
        for none. Returns False for a result that is too large even so, and is not stored.
        """
        path = self.result_path(app_name, result.eval_set_result_name)
        return await asyncio.to_thread(self._save_result, path, result, max_results, max_bytes)

    def _save_result(
        self,
        path: Path,
        result: EvalSetResult,
        max_results: int | None,
        max_bytes: int | None,
    ) -> bool:
        text = text_of(result)
        if max_bytes is not None and len(text) > max_bytes:
            text = text_of(_without_sessions(result))
            if len(text) > max_bytes:
                _log.warning(
                    "the result %s is not stored: it has over %d bytes",
                    path.name,
                    max_bytes,
                )
                return False

            _log.warning(
                "the result %s is stored without its sessions: it has over %d bytes",
                path.name,
                max_bytes,
            )

        with _results_lock:
            write_text(path, text)
            if max_results is not None:
                _delete_oldest(path.parent, keep=max_results)

        return True

    def result_path(self, app_name: str, result_id: str) -> Path:
        """Raises NotFound if it can't be the name of a file."""
        if not re.fullmatch(r"[\w.-]{1,230}", result_id) or result_id.startswith("."):
            raise NotFound(f"Evaluation result not found: {result_id[:100]!r}")
        return self._folder_of(app_name) / HISTORY / f"{result_id}{RESULT_SUFFIX}"

    async def list_tests(self, app_name: str) -> list[str]:
        """Names with `.json`."""
        return [
            f"{name}.json" for name in await asyncio.to_thread(_names, self._folder_of(app_name) / "tests", ".json")
        ]

    async def get_test(self, app_name: str, name: str) -> Session:
        """Raises NotFound, InvalidRequest."""
        test = await asyncio.to_thread(
            _read,
            self._test_path(app_name, name),
            KeptSession,
            "Test file",
        )
        return test.session(app_name=app_name, name=name)

    async def save_test(self, app_name: str, name: str, session: Session) -> str:
        """Saves a test of the app, and returns the name of the file.

        name: with or without `.json`. Raises NotFound if it can't be a file's name.
        """
        path = self._test_path(app_name, name)
        await asyncio.to_thread(write_record, path, session)
        return path.name

    async def delete_test(self, app_name: str, name: str) -> None:
        """Raises NotFound."""
        try:
            await asyncio.to_thread(self._test_path(app_name, name).unlink)
        except FileNotFoundError:
            raise NotFound("Test file not found") from None

    def _test_path(self, app_name: str, name: str) -> Path:
        stem = name.removesuffix(".json")
        if not re.fullmatch(r"[\w-]{1,200}", stem, re.ASCII):
            raise NotFound("Test file not found")
        return self._folder_of(app_name) / "tests" / f"{stem}.json"

    def _set_path(self, app_name: str, set_id: str) -> Path:
        return self._folder_of(app_name) / f"{set_id}{SET_SUFFIX}"

    def _read(self, app_name: str, set_id: str) -> EvalSet:
        if not re.fullmatch(r"\w{1,200}", set_id, re.ASCII):
            raise NotFound(f"Evaluation set not found: {set_id[:100]!r}")
        eval_set = read_eval_set(
            _read_bytes(self._set_path(app_name, set_id), f"Evaluation set {set_id!r}"),
            set_id,
        )
        eval_set.version = None  # the history has it
        return eval_set

    def _history(self, app_name: str, set_id: str) -> SetHistory:
        return SetHistory(self._folder_of(app_name) / _VERSIONS / f"{set_id}.versions.jsonl")

    async def _change(self, app_name: str, set_id: str, change: Callable[[EvalSet], None]) -> int | None:
        """Returns the new version of the set."""

        def read_and_write() -> int | None:
            self._read(app_name, set_id)  # raises NotFound, before the lock makes a file
            history = self._history(app_name, set_id)
            with history.locked():
                eval_set = self._read(app_name, set_id)
                history.record(eval_set.eval_cases)  # as it was edited by hand
                change(eval_set)
                write_record(self._set_path(app_name, set_id), eval_set)
                return history.record(eval_set.eval_cases)

        return await asyncio.to_thread(read_and_write)


def _index(eval_set: EvalSet, eval_id: str) -> int:
    for index, case in enumerate(eval_set.eval_cases):
        if case.eval_id == eval_id:
            return index
    raise NotFound(f"Case not found: {eval_id[:100]!r} in {eval_set.eval_set_id!r}")


def _names(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}"))


def _read_bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{what} not found") from None


def _read(path: Path, record: type[T], what: str) -> T:
    plain = _parsed(_read_bytes(path, what))
    # ADK 1 wrote the result as a string that holds the JSON.
    return wire.from_plain(_parsed(plain.encode()) if isinstance(plain, str) else plain, record)


def write_record(path: Path, record: PydanticMethods) -> None:
    """Writes a file with names in snake_case. Readers see the former file or the new one, whole."""
    write_text(path, text_of(record))


def text_of(record: PydanticMethods) -> bytes:
    return msgspec.json.format(
        msgspec.json.encode(record.model_dump(mode="json", exclude_none=True)),
        indent=2,
    )


def _without_sessions(result: EvalSetResult) -> EvalSetResult:
    cases = [msgspec.structs.replace(case, session_details=None) for case in result.eval_case_results]
    return msgspec.structs.replace(result, eval_case_results=cases)


def _delete_oldest(history: Path, *, keep: int) -> None:
    with os.scandir(history) as entries:
        results = [entry for entry in entries if entry.name.endswith(RESULT_SUFFIX)]
    results.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    for entry in results[keep:]:
        os.unlink(entry.path)


def write_text(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)

    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".tmp", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def read_eval_set(data: bytes, name: str) -> EvalSet:
    """A set in either of ADK's schemas. name: of sets of the older one. Raises InvalidRequest."""
    plain = _parsed(data)
    if isinstance(plain, list):
        return _from_older_format(cast("list[Any]", plain), name)
    eval_set = wire.from_plain(plain, EvalSet)
    for case in eval_set.eval_cases:
        case.check()
    return eval_set


def _parsed(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"The file is not valid JSON: {error}") from None


def _from_older_format(sessions: list[Any], name: str) -> EvalSet:
    """`[{name, data: [{query, expected_tool_use, expected_intermediate_agent_responses, reference}],
    initial_session}]`; where only the turns are listed, they are one case."""
    if sessions and all(isinstance(one, dict) and "query" in one for one in sessions):
        sessions = [{"name": name, "data": sessions}]
    try:
        cases = [_older_case(session) for session in sessions]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"The file is neither an evaluation set nor one in the older schema: {error!r}") from None
    return EvalSet(eval_set_id=name, name=name, eval_cases=cases, creation_timestamp=time.time())


def _older_case(session: JsonObject) -> EvalCase:
    initial: JsonObject = session.get("initial_session") or {}
    return EvalCase(
        eval_id=session["name"],
        conversation=[_older_turn(turn) for turn in session["data"]],
        session_input=wire.from_plain(initial, SessionInput) if initial else None,
        creation_timestamp=time.time(),
    )


def _older_turn(turn: JsonObject) -> Invocation:
    uses = turn.get("expected_tool_use") or ()
    texts = turn.get("expected_intermediate_agent_responses") or ()
    reference = turn.get("reference")
    return Invocation(
        invocation_id=str(uuid4()),
        user_content=Content(role="user", parts=[Part(text=turn["query"])]),
        final_response=None if reference is None else Content(role="model", parts=[Part(text=reference)]),
        intermediate_data=IntermediateData(
            tool_uses=[FunctionCall(name=use["tool_name"], args=use.get("tool_input")) for use in uses],
            intermediate_responses=[(response["author"], [Part(text=response["text"])]) for response in texts],
        ),
        creation_timestamp=time.time(),
    )
