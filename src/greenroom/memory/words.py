"""Splits texts into words for full-text search."""

from __future__ import annotations

import re
import unicodedata

_ASCII_WORD = re.compile(r"[a-z0-9]+")

# Scripts without spaces between words, and Hangul, whose words include particles.
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff"  # Hangul
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "]+"
)


def words_of_text(text: str) -> set[str]:
    """The index terms of a text: words; in scripts without spaces, every letter and every pair of letters."""
    return _words(text, single_letters=True)


def words_of_query(text: str) -> list[str]:
    """The search terms of a query, each once: words; in scripts without spaces, pairs of letters."""
    return sorted(_words(text, single_letters=False))


def _words(text: str, *, single_letters: bool) -> set[str]:
    if text.isascii():
        return set(_ASCII_WORD.findall(text.lower()))
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())

    words: set[str] = set()
    for run in _runs(text):
        spaced_from = 0
        for unspaced in _UNSPACED.finditer(run):
            words.add(run[spaced_from : unspaced.start()])
            spaced_from = unspaced.end()
            letters = unspaced[0]
            words.update(letters[at : at + 2] for at in range(len(letters) - 1))
            if single_letters or len(letters) == 1:
                words.update(letters)
        words.add(run[spaced_from:])

    words.discard("")
    return words


def _runs(text: str) -> list[str]:
    """Runs of letters, digits and their marks; `\\w` would split Indic words at their vowel signs."""
    return "".join(
        letter if letter.isalnum() or unicodedata.category(letter)[0] == "M" else " " for letter in text
    ).split()
