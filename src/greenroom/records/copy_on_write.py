"""A list that is copied in constant time and whose copies don't see each other's changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from itertools import islice
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

import msgspec

T = TypeVar("T")


class CopyOnWriteList(MutableSequence[T], Generic[T]):
    """A view of the first `len(self)` items of a list that is shared with other views.

    Appending to the view that ends where the shared list ends extends the shared list: the other views
    keep their length, so they don't notice. Any other change first gives this view a list of its own.
    """

    __slots__ = ("_count", "_items", "carried", "derived", "skipped")

    derived: dict[Any, Any]
    """Values that readers computed from the shared items, by a key of theirs; shared by the views
    that share the items."""
    skipped: int
    """Number of items before the first loaded one."""
    carried: Sequence[T]
    """Those of the skipped items that readers need all the same."""

    def __init__(self, items: Iterable[T] = (), *, skipped: int = 0, carried: Sequence[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._count = len(self._items)
        self.derived = {}
        self.skipped = skipped
        self.carried = carried

    @property
    def end(self) -> int:
        """The number of items, including unloaded ones."""
        return self.skipped + self._count

    def snapshot(self) -> CopyOnWriteList[T]:
        """An equal list, in constant time."""
        view: CopyOnWriteList[T] = CopyOnWriteList.__new__(type(self))
        view._items = self._items
        view._count = self._count
        view.derived = self.derived
        view.skipped = self.skipped
        view.carried = self.carried
        return view

    def first(self, count: int) -> CopyOnWriteList[T]:
        """A list of the first items, in constant time."""
        view: CopyOnWriteList[T] = CopyOnWriteList()
        view._items = self._items
        view._count = min(count, self._count)
        return view

    def shares_items_with(self, other: CopyOnWriteList[T]) -> bool:
        return self._items is other._items

    def _own(self) -> list[T]:
        self._items = self._items[: self._count]
        self.derived = {}
        return self._items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._count)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        if type(index) is int and 0 <= index < self._count:
            return self._items[index]
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step > 0:
                return self._items[start:stop:step]
            return [self._items[position] for position in range(start, stop, step)]
        return self._items[self._resolve(index)]

    @overload
    def __setitem__(self, index: SupportsIndex, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        items = self._own()
        items[index] = value
        self._count = len(items)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        items = self._own()
        del items[index]
        self._count = len(items)

    def insert(self, index: SupportsIndex, value: T) -> None:
        items = self._own()
        items.insert(index, value)
        self._count = len(items)

    def append(self, value: T) -> None:
        items = self._items if len(self._items) == self._count else self._own()
        items.append(value)
        self._count += 1

    def extend(self, values: Iterable[T]) -> None:
        for value in list(values):
            self.append(value)

    def __add__(self, other: Iterable[T]) -> list[T]:
        return [*self, *other]

    def __radd__(self, other: Iterable[T]) -> list[T]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, CopyOnWriteList)):
            return NotImplemented
        return list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return repr(list(self))

    def _resolve(self, index: SupportsIndex) -> int:
        position = index.__index__()
        if position < 0:
            position += self._count
        if not 0 <= position < self._count:
            raise IndexError("list index out of range")
        return position


class CopyOnReadList(CopyOnWriteList[T]):
    """A list of shared records for code that may change them in place: each is copied when it is first read."""

    __slots__ = ("_own_ids",)

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__(items)
        self._own_ids: set[int] = set()

    def __iter__(self) -> Iterator[T]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._count))]
        position = self._resolve(index)
        item = self._items[position]
        if id(item) not in self._own_ids:
            item = self._items[position] = _deep_copy(item)
            self._own_ids.add(id(item))
        return item

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = list(value)
            self._own_ids.update(map(id, value))
        else:
            self._own_ids.add(id(value))
        super().__setitem__(cast("Any", index), value)

    def insert(self, index: SupportsIndex, value: T) -> None:
        self._own_ids.add(id(value))
        super().insert(index, value)

    def append(self, value: T) -> None:
        self._own_ids.add(id(value))
        super().append(value)

    def replace_own_items(self, function: Callable[[T], T]) -> None:
        """Applies a function to the items that were read or added."""
        for index, item in enumerate(self._items):
            if id(item) in self._own_ids:
                self._items[index] = function(item)

    def as_they_are(self) -> CopyOnWriteList[T]:
        """The items for readers that change nothing: items that were not read are still shared."""
        items: CopyOnWriteList[T] = CopyOnWriteList()
        items._items = self._items
        items._count = self._count
        return items


def _deep_copy(value: Any) -> Any:
    """Copies records, lists and maps; faster than `copy.deepcopy`, because JSON has no cycles."""
    if isinstance(value, msgspec.Struct):
        copied = copy.copy(value)
        for name in copied.__struct_fields__:
            field = getattr(copied, name)
            if isinstance(field, (msgspec.Struct, list, dict)):
                setattr(copied, name, _deep_copy(field))
        return copied

    if isinstance(value, list):
        return [_deep_copy(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _deep_copy(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value
