"""The context that a node's code receives."""

from __future__ import annotations

import hashlib
from typing import Any

from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.errors import StateSchemaError
from greenroom.agents.workflow.position import NodeRecord
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.sleep import Waiter, is_wait_id
from greenroom.invocation.user_context import Context
from greenroom.records.base import JsonObject
from greenroom.records.event import EventActions
from greenroom.records.state import APP_PREFIX, TEMP_PREFIX, USER_PREFIX, State
from greenroom.tools.result import to_plain
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.value_types.type_schema import type_schema


class NodeContext(Context):
    """The context of one attempt of a node.

    record: of all its attempts.
    state_schema: see `BaseNode`.
    waiter: the node.
    """

    def __init__(
        self,
        invocation_context: InvocationContext,
        record: NodeRecord,
        state_schema: Any,
        node: BaseNode,
        path: str,
        parent_ctx: Context | None,
        waiter: Waiter,
    ) -> None:
        super().__init__(
            invocation_context,
            parent_ctx=parent_ctx,
            node=node,
            node_path=path,
            run_id=path.rpartition("@")[2],
            resume_inputs={name: answer for name, answer in record.answers.items() if not is_wait_id(name)},
            attempt_count=record.attempt,
        )
        self._record = record
        self._state_schema = state_schema
        self._node_waiter = waiter

    def _waiter(self) -> Waiter:
        return self._node_waiter

    @property
    def _place(self) -> str:
        return self._node_waiter.place

    @property
    def interrupt_ids(self) -> set[str]:
        return set(self._record.requests)

    @property
    def state(self) -> State:
        if self._state is None and self._state_schema is not None:
            values = self._invocation_context.session.state
            self._state = _CheckedState(values, self.actions.state_delta, self._state_schema)
        return super().state

    @property
    def idempotency_key(self) -> str:
        """A key that all attempts of this run of the node share, and no other."""
        return hashlib.sha256(f"{self.invocation_id} {self.node_path}".encode()).hexdigest()

    def take_actions(self) -> EventActions | None:
        """Returns the changes since the last call, None for none."""
        actions = self.collect_actions()
        if actions == _NOTHING:
            return None
        self.actions = EventActions()
        self._state = None
        check_delta(actions.state_delta, self._state_schema)
        return actions


_NOTHING = EventActions()
_FREE = (APP_PREFIX, USER_PREFIX, TEMP_PREFIX)


class _CheckedState(State):
    __slots__ = ("_schema",)

    def __init__(self, value: JsonObject, delta: JsonObject, schema: Any) -> None:
        super().__init__(value, delta)
        self._schema = schema

    def __setitem__(self, key: str, value: Any) -> None:
        check_delta({key: value}, self._schema)
        super().__setitem__(key, value)


def check_delta(delta: JsonObject, schema: Any) -> None:
    """Raises StateSchemaError for a key or a value that the schema doesn't have; keys with a prefix
    are free.
    """
    if schema is None:
        return

    fields = state_fields(schema)
    for key, value in delta.items():
        if key.startswith(_FREE):
            continue
        if key not in fields:
            raise StateSchemaError(f"The state schema {schema.__name__} has no field {key!r}")

        if value is not None:
            try:
                type_schema(fields[key]).convert(to_plain(value))
            except InvalidValue as error:
                raise StateSchemaError(f"The state's {key!r} does not fit {schema.__name__}: {error}") from None


def state_fields(schema: Any) -> dict[str, Any]:
    return {name: field.annotation for name, field in schema.model_fields.items()}
