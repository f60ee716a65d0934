"""Keys and characters of an X server.

xdotool finds a key for a character that the keyboard layout lacks by changing the layout for the
moment of the key press. A program that is busy at that moment reads another layout, and so another
character. Therefore the characters of a text get keys of their own before the text is typed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator

from greenroom.errors import ToolError

SPARE_KEYS = (*range(147, 191), *range(208, 235), *range(239, 255))
"""Key codes that the US layout leaves free."""

_KEYMAP = """\
xkb_keymap {{
  xkb_keycodes {{ include "evdev+aliases(qwerty)" }};
  xkb_types {{ include "complete" }};
  xkb_compat {{ include "complete" }};
  xkb_symbols {{ include "pc+us"
{keys}
  }};
}};
"""

_NAMED = {
    "control": "Control_L", "ctrl": "Control_L", "controlormeta": "Control_L", "alt": "Alt_L", "option": "Alt_L",
    "shift": "Shift_L", "meta": "Super_L", "super": "Super_L", "command": "Super_L", "cmd": "Super_L",
    "win": "Super_L", "windows": "Super_L",
    "enter": "Return", "return": "Return", "tab": "Tab", "space": "space", "backspace": "BackSpace",
    "delete": "Delete", "del": "Delete", "insert": "Insert", "escape": "Escape", "esc": "Escape", "home": "Home",
    "end": "End", "pageup": "Prior", "page_up": "Prior", "pagedown": "Next", "page_down": "Next",
    "arrowup": "Up", "up": "Up", "arrowdown": "Down", "down": "Down", "arrowleft": "Left", "left": "Left",
    "arrowright": "Right", "right": "Right", "capslock": "Caps_Lock", "printscreen": "Print", "menu": "Menu",
} | {f"f{number}": f"F{number}" for number in range(1, 13)}  # fmt: skip
"""X's names of keys by those that models write, in lower case."""


def key_symbols(keys: Collection[str]) -> list[str]:
    """X's names of keys that are pressed together, as `["control", "c"]`. Raises ToolError for unknown ones.

    A letter in a combination is the key, not the capital: models write `Control+C` for Control and C.
    """
    symbols: list[str] = []
    for key in keys:
        name = key if len(key) == 1 else key.strip()
        if name.lower() in _NAMED:
            symbols.append(_NAMED[name.lower()])
        elif len(name) == 1 and name.isprintable():
            symbols.append(_symbol(name.lower() if len(keys) > 1 else name))
        else:
            raise ToolError(f"there is no key {key!r}; a key is a character, or a name like Enter, Control or F1")

    if not symbols:
        raise ToolError("no key is named")

    return symbols


def characters_of(keys: Collection[str]) -> str:
    """The characters among the keys of a combination, as they are pressed."""
    return "".join(key.lower() if len(keys) > 1 else key for key in keys if len(key) == 1)


def is_typable(text: str) -> bool:
    """True if the text has no control characters except tabs and line breaks."""
    return all(character in "\t\r\n" or unicodedata.category(character) not in ("Cc", "Cs") for character in text)


def typed_in_parts(text: str) -> Iterator[str]:
    """Splits a text so that the spare keys are enough for the characters of each part."""
    start = 0
    special: set[str] = set()
    for position, character in enumerate(text):
        if character.isascii() or character in special:
            continue
        if len(special) == len(SPARE_KEYS):
            yield text[start:position]
            start = position
            special.clear()
        special.add(character)

    yield text[start:]


class SpareKeys:
    """Assigns characters that the US layout lacks to spare keys."""

    def __init__(self) -> None:
        self._assigned: dict[str, int] = {}

    def assign(self, text: str) -> str | None:
        """The new keymap, as source for xkbcomp; None if all characters have their keys.

        Characters keep their keys as long as there are spare ones, for programs that read slowly.
        text: with at most as many special characters as there are spare keys.
        """
        special = dict.fromkeys(character for character in text if not character.isascii())
        new = [character for character in special if character not in self._assigned]
        if not new:
            return None

        if len(self._assigned) + len(new) > len(SPARE_KEYS):
            self._assigned.clear()
            new = list(special)

        for character in new:
            self._assigned[character] = SPARE_KEYS[len(self._assigned)]

        keys = "\n".join(f"    key <I{key}> {{ [ {_symbol(char)} ] }};" for char, key in self._assigned.items())
        return _KEYMAP.format(keys=keys)


def _symbol(character: str) -> str:
    return f"U{ord(character):04X}"
