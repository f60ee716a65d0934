"""A checkpointer that keeps a graph's checkpoints in the session's log.

A checkpoint is stored as what has changed since its parent: the versions of its channels, and the values of the
channels with a new version. A value that continues a list is stored as the new items, so that the log grows with the
conversation and not with its square. What a task has written is stored until the next checkpoint holds it.
"""

from __future__ import annotations

import base64
import copy
import math
import operator
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from random import getrandbits
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import RESUME

from greenroom.agents.frameworks.langgraph.messages import give_ids
from greenroom.records.base import JsonObject, JsonValue

Namespace: TypeAlias = str
"""Of a graph, empty for the outermost one."""

Version: TypeAlias = int | float | str


class _Blob(NamedTuple):
    """A value of a channel: a list's items, encoded one by one, or anything else as a whole."""

    whole: JsonValue
    items: tuple[JsonValue, ...] | None = None


class _Encoded(NamedTuple):
    message: BaseMessage
    """Kept, so that no other object gets its address."""
    version: tuple[object, ...]
    encoded: JsonValue


class _Write(NamedTuple):
    task_id: str
    position: int
    channel: str
    value: JsonValue
    task_path: str


class _Stored(NamedTuple):
    """A checkpoint without its values."""

    checkpoint: JsonObject
    metadata: JsonObject
    parent_id: str | None


class CheckpointStore:
    """The checkpoints of a conversation, read from the states in the log.

    keeps_all: also the checkpoints that a newer one has replaced. Without them, reading a state that continues one of
    them raises KeyError.
    """

    def __init__(self, *, keeps_all: bool = False) -> None:
        self.checkpoints: dict[Namespace, dict[str, _Stored]] = {}
        """By namespace and id, in the order in which they were stored."""
        self.blobs: dict[tuple[Namespace, str, Version], _Blob] = {}
        self.writes: dict[tuple[Namespace, str], dict[tuple[str, int], _Write]] = {}
        """Of the tasks that ran from a checkpoint."""
        self._keeps_all = keeps_all

    def read(self, state: JsonObject) -> None:
        """Adds a state, as `LogCheckpointSaver` stored it."""
        for entry in state.get("checkpoints", ()):
            self._read_checkpoint(entry)

        for namespace, checkpoint_id, task_id, task_path, writes in state.get("writes", ()):
            of_checkpoint = self.writes.setdefault((namespace, checkpoint_id), {})
            for index, channel, value in writes:
                of_checkpoint[task_id, index] = _Write(task_id, index, channel, value, task_path)

    def _read_checkpoint(self, entry: JsonObject) -> None:
        namespace: Namespace = entry["namespace"]
        parent_id: str | None = entry["parent"]
        own = self.checkpoints.setdefault(namespace, {})
        full: JsonObject = entry["checkpoint"]
        if parent_id is not None:
            full = _completed(full, own[parent_id].checkpoint)

        versions: JsonObject = full[_VERSIONS]
        for channel, value in entry.get("values", {}).items():
            self.blobs[namespace, channel, versions[channel]] = _Blob(value)
        for channel, (base, kept, items) in entry.get("lists", {}).items():
            before = self.blobs[base[0], channel, base[1]].items if base is not None else ()
            self.blobs[namespace, channel, versions[channel]] = _Blob(None, (*(before or ())[:kept], *items))

        metadata: JsonObject = entry["metadata"]
        own[full["id"]] = _Stored(full, metadata, parent_id)
        if not self._keeps_all and _DELTA_COUNTERS not in metadata:
            self._drop_replaced(namespace, full)

    def _drop_replaced(self, namespace: Namespace, newest: JsonObject) -> None:
        """Drops what the newest checkpoint of a graph has replaced: the earlier ones, and those of the graphs that its
        tasks have run.
        """
        newest_id: str = newest["id"]
        own = self.checkpoints[namespace]
        self.checkpoints[namespace] = {newest_id: own[newest_id]}
        for inner in [one for one in self.checkpoints if _is_of_task(one, namespace)]:
            del self.checkpoints[inner]

        versions: JsonObject = newest[_VERSIONS]
        self.blobs = {
            key: blob
            for key, blob in self.blobs.items()
            if not _is_of_task(key[0], namespace) and (key[0] != namespace or versions.get(key[1]) == key[2])
        }
        self.writes = {
            key: writes
            for key, writes in self.writes.items()
            if not _is_of_task(key[0], namespace) and (key[0] != namespace or key[1] == newest_id)
        }

    def copy(self) -> CheckpointStore:
        copied = CheckpointStore(keeps_all=self._keeps_all)
        copied.checkpoints = {namespace: dict(own) for namespace, own in self.checkpoints.items()}
        copied.blobs = dict(self.blobs)
        copied.writes = {key: dict(own) for key, own in self.writes.items()}
        return copied


class _Read(NamedTuple):
    states: list[JsonObject]
    store: CheckpointStore


def read_states(states: list[JsonObject], derived: dict[Any, Any], key: object) -> CheckpointStore:
    """The checkpoints in the states of a conversation, to be changed by the caller. Each state is read once.

    derived: a place for what was read, by a key.
    """
    known: _Read | None = derived.get(key)
    if known is None or len(known.states) > len(states) or any(map(operator.is_not, known.states, states)):
        known = _Read([], CheckpointStore())

    try:
        for state in states[len(known.states) :]:
            known.store.read(state)
    except KeyError:  # runs waited while others went on from the same checkpoint
        derived.pop(key, None)
        store = CheckpointStore(keeps_all=True)
        for state in states:
            store.read(state)
        return store

    derived[key] = _Read(states, known.store)
    return known.store.copy()


def _is_of_task(inner: Namespace, outer: Namespace) -> bool:
    """Whether a graph ran in a task of the other one. A graph that keeps its own history has no task in its name."""
    rest = inner.removeprefix(f"{outer}|") if outer else inner
    return ":" in rest and (not outer or rest != inner)


_DELTA_COUNTERS = "counters_since_delta_snapshot"
_VERSIONS = "channel_versions"
_SEEN = "versions_seen"


def _difference(checkpoint: JsonObject, parent: JsonObject) -> JsonObject:
    """The checkpoint with only those versions that differ from its parent's."""
    changed = dict(checkpoint)
    changed[_VERSIONS] = _changed(checkpoint[_VERSIONS], parent[_VERSIONS])
    seen = {node: _changed(own, parent[_SEEN].get(node, {})) for node, own in checkpoint[_SEEN].items()}
    changed[_SEEN] = {node: own for node, own in seen.items() if own or node not in parent[_SEEN]}
    return changed


def _changed(versions: JsonObject, before: JsonObject) -> JsonObject:
    return {name: version for name, version in versions.items() if before.get(name) != version}


def _completed(checkpoint: JsonObject, parent: JsonObject) -> JsonObject:
    """The reverse of `_difference`. Versions are never removed."""
    full = dict(checkpoint)
    full[_VERSIONS] = parent[_VERSIONS] | checkpoint[_VERSIONS]
    own: JsonObject = checkpoint[_SEEN]
    full[_SEEN] = parent[_SEEN] | {node: parent[_SEEN].get(node, {}) | versions for node, versions in own.items()}
    return full


class LogCheckpointSaver(BaseCheckpointSaver[str]):
    """The checkpointer of one turn. What the graph puts is kept in memory until `take_state`, which makes it a state
    for the log.

    on_checkpoint: awaited when a checkpoint was put, with its namespace. on_writes: called when a task of a graph has
    ended, or halted, with the id of the task, its path, and its writes.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        serde: SerializerProtocol,
        on_checkpoint: Callable[[Namespace, Checkpoint], Any],
        on_writes: Callable[[Namespace, str, str, Sequence[tuple[str, Any]]], None],
    ) -> None:
        super().__init__(serde=serde)
        self._store = store
        self._on_checkpoint = on_checkpoint
        self._on_writes = on_writes
        self._checkpoints: dict[Namespace, list[str]] = {}
        """The checkpoints that aren't in the log, by namespace, oldest first."""
        self._stored_ids: dict[Namespace, str] = {
            namespace: next(reversed(own)) for namespace, own in store.checkpoints.items()
        }
        """The newest checkpoints in the log."""
        self._unencoded: dict[tuple[Namespace, str, Version], Any] = {}
        """The values of channels that were put."""
        self._messages: dict[int, _Encoded] = {}
        """The messages of the state as they are encoded, by their addresses."""
        self._writes: dict[tuple[Namespace, str, str], tuple[str, dict[int, _Write]]] = {}

    # reading

    def namespaces(self) -> Sequence[Namespace]:
        """The graphs that have checkpoints."""
        return list(self._store.checkpoints)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        configurable = _configurable(config)
        namespace: Namespace = configurable.get("checkpoint_ns", "")
        own = self._store.checkpoints.get(namespace)
        if not own:
            return None
        checkpoint_id = configurable.get("checkpoint_id") or next(reversed(own))
        stored = own.get(checkpoint_id)
        return self._tuple(config, namespace, checkpoint_id, stored) if stored is not None else None

    def _tuple(
        self, config: RunnableConfig, namespace: Namespace, checkpoint_id: str, stored: _Stored
    ) -> CheckpointTuple:
        checkpoint = cast("Checkpoint", {**_copied(stored.checkpoint), "channel_values": {}})
        for channel, version in checkpoint["channel_versions"].items():
            blob = self._blob(namespace, channel, version)
            if blob is not None:
                checkpoint["channel_values"][channel] = self._decode_blob(blob)

        writes = sorted(
            self._store.writes.get((namespace, checkpoint_id), {}).values(),
            key=lambda write: writes_sort_key(write.task_path, write.task_id, write.position),
        )
        return CheckpointTuple(
            _addressed(config, namespace, checkpoint_id),
            checkpoint,
            cast("CheckpointMetadata", stored.metadata),
            _addressed(config, namespace, stored.parent_id) if stored.parent_id else None,
            [(write.task_id, write.channel, self._decode(write.value)) for write in writes],
        )

    def values_of(self, states: Sequence[JsonObject]) -> Mapping[str, Any]:
        """The values of the outermost graph after the states of a run; empty if they aren't kept."""
        entries = [entry for state in states for entry in state.get("checkpoints", ()) if not entry["namespace"]]
        checkpoint_id: str = entries[-1]["checkpoint"]["id"] if entries else ""
        stored = self._store.checkpoints.get("", {}).get(checkpoint_id)
        return self._tuple({}, "", checkpoint_id, stored).checkpoint["channel_values"] if stored is not None else {}

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        if config is None:
            return
        namespace: Namespace = _configurable(config).get("checkpoint_ns", "")
        earlier_than: str | None = _configurable(before).get("checkpoint_id") if before is not None else None
        found = 0
        for checkpoint_id, stored in reversed(self._store.checkpoints.get(namespace, {}).items()):
            if limit is not None and found >= limit:
                return
            if earlier_than is not None and checkpoint_id >= earlier_than:
                continue
            if filter and any(stored.metadata.get(key) != value for key, value in filter.items()):
                continue
            found += 1
            yield self._tuple(config, namespace, checkpoint_id, stored)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    # writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        configurable = _configurable(config)
        namespace: Namespace = configurable.get("checkpoint_ns", "")
        plain = cast("JsonObject", {name: value for name, value in checkpoint.items() if name != "channel_values"})
        values = checkpoint["channel_values"]
        for channel, version in new_versions.items():
            if channel in values:
                self._unencoded[namespace, channel, version] = _detached(values[channel])

        stored = _Stored(plain, dict(metadata), configurable.get("checkpoint_id"))
        self._store.checkpoints.setdefault(namespace, {})[checkpoint["id"]] = stored
        self._checkpoints.setdefault(namespace, []).append(checkpoint["id"])

        return _addressed(config, namespace, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        put = self.put(config, checkpoint, metadata, new_versions)
        await self._on_checkpoint(_configurable(config).get("checkpoint_ns", ""), checkpoint)
        return put

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        give_ids(writes)
        configurable = _configurable(config)
        namespace: Namespace = configurable.get("checkpoint_ns", "")
        checkpoint_id: str = configurable["checkpoint_id"]
        of_checkpoint = self._store.writes.setdefault((namespace, checkpoint_id), {})
        _, pending = self._writes.setdefault((namespace, checkpoint_id, task_id), (task_path, {}))
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            write = _Write(task_id, index, channel, self._encode(value), task_path)
            if index >= 0 and (task_id, index) in of_checkpoint:
                continue
            of_checkpoint[task_id, index] = write
            pending[index] = write
        self._on_writes(namespace, task_id, task_path, writes)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    def resume_count(self, namespace: Namespace, task_id: str) -> int:
        """The number of answers that a task has got to its interrupts."""
        own = self._store.checkpoints.get(namespace)
        writes = self._store.writes.get((namespace, next(reversed(own))), {}) if own else {}
        resumes = writes.get((task_id, WRITES_IDX_MAP[RESUME]))
        return len(self._decode(resumes.value)) if resumes is not None else 0

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A number, and a random one: runs that go on from one checkpoint have versions of their own."""
        number = 0 if current is None else int(current.partition(".")[0])
        return f"{number + 1:08}.{getrandbits(32):08x}"

    # into the log

    def take_state(self) -> JsonObject | None:
        """Returns the checkpoints and writes since the last call as a state for the log; None if there are none."""
        state: JsonObject = {}
        for namespace, ids in self._checkpoints.items():
            needed = ids if self._has_delta_channels(namespace) else ids[-1:]
            for checkpoint_id in needed:
                self._add_checkpoint(state, namespace, checkpoint_id)

        for (namespace, checkpoint_id, task_id), (task_path, writes) in self._writes.items():
            if self._is_newest(namespace, checkpoint_id) or self._has_delta_channels(namespace):
                written = [[write.position, write.channel, write.value] for write in writes.values()]
                state.setdefault("writes", []).append([namespace, checkpoint_id, task_id, task_path, written])

        self._checkpoints = {}
        self._writes = {}
        return state or None

    def _is_newest(self, namespace: Namespace, checkpoint_id: str) -> bool:
        own = self._store.checkpoints.get(namespace)
        return not own or next(reversed(own)) == checkpoint_id

    def _has_delta_channels(self, namespace: Namespace) -> bool:
        """Whether values of channels follow from the writes since an earlier checkpoint."""
        own = self._store.checkpoints.get(namespace)
        return bool(own) and _DELTA_COUNTERS in own[next(reversed(own))].metadata

    def _add_checkpoint(self, state: JsonObject, namespace: Namespace, checkpoint_id: str) -> None:
        own = self._store.checkpoints[namespace]
        base_id = self._stored_ids.get(namespace)
        base = own[base_id].checkpoint if base_id is not None else None
        self._stored_ids[namespace] = checkpoint_id
        stored = own[checkpoint_id] = own[checkpoint_id]._replace(parent_id=base_id)

        plain = stored.checkpoint if base is None else _difference(stored.checkpoint, base)
        values: JsonObject = {}
        lists: JsonObject = {}
        for channel, version in plain[_VERSIONS].items():
            blob = self._blob(namespace, channel, version)
            if blob is None:
                continue
            if blob.items is None:
                values[channel] = blob.whole
            else:
                lists[channel] = self._continued(namespace, channel, blob.items, base)

        entry: JsonObject = {
            "namespace": namespace,
            "parent": base_id,
            "checkpoint": plain,
            "metadata": stored.metadata,
            "values": values,
            "lists": lists,
        }
        state.setdefault("checkpoints", []).append(entry)

    def _continued(
        self, namespace: Namespace, channel: str, items: Sequence[JsonValue], base: JsonObject | None
    ) -> list[JsonValue]:
        """The stored list that a list continues, the number of items that they share, and the further items. A graph
        within another one often begins with the outer one's list.
        """
        outer_id = self._stored_ids.get(_outer(namespace)) if base is None and namespace else None
        if outer_id is not None:
            namespace = _outer(namespace)
            base = self._store.checkpoints[namespace][outer_id].checkpoint

        version: Version | None = base[_VERSIONS].get(channel) if base is not None else None
        earlier = self._blob(namespace, channel, version) if version is not None else None
        kept = _shared(items, earlier.items if earlier is not None else None)
        return [[namespace, version] if kept else None, kept, [*items[kept:]]]

    # encoding

    def _blob(self, namespace: Namespace, channel: str, version: Version) -> _Blob | None:
        """A channel's value as it is stored. It is encoded here, since most checkpoints are replaced before that."""
        key = namespace, channel, version
        if key in self._unencoded:
            self._store.blobs[key] = self._encode_blob(self._unencoded.pop(key))
        return self._store.blobs.get(key)

    def _encode_blob(self, value: Any) -> _Blob:
        if type(value) is list and value and not _is_plain(value):
            return _Blob(None, tuple(self._encode_item(item) for item in cast("Sequence[Any]", value)))
        return _Blob(self._encode(value))

    def _decode_blob(self, blob: _Blob) -> Any:
        if blob.items is not None:
            return [self._decode_item(item) for item in blob.items]
        return self._decode(blob.whole)

    def _encode_item(self, item: Any) -> JsonValue:
        """Messages are encoded once, since each checkpoint has all of them."""
        if not isinstance(item, BaseMessage):
            return self._encode(item)
        known = self._messages.get(id(item))
        version = _version_of(item)
        if known is not None and known.version == version:
            return known.encoded
        encoded = self._encode(item)
        self._messages[id(item)] = _Encoded(item, version, encoded)
        return encoded

    def _decode_item(self, encoded: JsonValue) -> Any:
        item = self._decode(encoded)
        if isinstance(item, BaseMessage):
            self._messages[id(item)] = _Encoded(item, _version_of(item), encoded)
        return item

    def _encode(self, value: Any) -> JsonValue:
        """JSON values as they are, in a list of one; others as LangGraph's serializer encodes them."""
        if _is_plain(value):
            return [_copied(value)]
        kind, data = self.serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode()]

    def _decode(self, encoded: JsonValue) -> Any:
        parts = cast("Sequence[Any]", encoded)
        if len(parts) == 1:
            return _copied(parts[0])
        return self.serde.loads_typed((parts[0], base64.b64decode(parts[1])))


def _configurable(config: RunnableConfig) -> JsonObject:
    return config.get("configurable", {})


def _addressed(config: RunnableConfig, namespace: Namespace, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": _configurable(config).get("thread_id", ""),
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _detached(value: Any) -> Any:
    """A copy of a list or a dict, to which a node may add something."""
    if type(value) is list or type(value) is dict:
        return copy.copy(cast("Any", value))
    return value


def _version_of(message: BaseMessage) -> tuple[object, ...]:
    """Differs for a message that a node has changed in place: its text, name or calls, or a part of its content."""
    content: Any = message.content
    if not isinstance(content, str):
        content = msgspec.json.encode(content, enc_hook=repr)
    calls: Any = getattr(message, "tool_calls", None) or ()
    return content, message.id, message.name, len(calls), len(message.additional_kwargs), len(message.response_metadata)


def _outer(namespace: Namespace) -> Namespace:
    return namespace.rpartition("|")[0]


def _shared(items: Sequence[JsonValue], before: Sequence[JsonValue] | None) -> int:
    """The number of items at the beginning that both lists have."""
    count = 0
    for item, earlier in zip(items, before or (), strict=False):
        if item != earlier:
            break
        count += 1
    return count


_SCALARS = (str, int, bool, type(None))


def _is_plain(value: Any) -> bool:
    """Whether JSON keeps the value as it is. Subclasses, as enums are, it doesn't."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in _SCALARS:
        return True
    if type(value) is list:
        return all(map(_is_plain, cast("Sequence[Any]", value)))
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in cast("Mapping[Any, Any]", value).items())
    return False


def _copied(value: Any) -> Any:
    """A copy, since nodes may change what they are given."""
    if type(value) is list:
        return [_copied(item) for item in cast("Sequence[Any]", value)]
    if type(value) is dict:
        return {key: _copied(item) for key, item in cast("Mapping[str, Any]", value).items()}
    return value


def allowed_types(graph: Any, further: Iterable[type]) -> list[tuple[str, str]]:
    """The classes that checkpoints are read back as, by module and name: those in the schemas of a graph, and further
    ones. Others aren't, since a client may have imported the log.
    """
    types = {(one.__module__, one.__qualname__) for one in further}
    try:
        from langgraph._internal._serde import build_serde_allowlist  # as `StateGraph.compile` does in strict mode
    except ImportError:
        return sorted(types)

    builder = getattr(graph, "builder", None)
    schemas = [builder.state_schema, builder.input_schema, builder.output_schema] if builder is not None else []
    schemas += [node.input_schema for node in builder.nodes.values()] if builder is not None else []
    found = cast("set[tuple[str, str]]", build_serde_allowlist(schemas=schemas, channels=graph.channels))
    return sorted(types | found)
