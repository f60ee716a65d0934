"""Prints the events of a session in a terminal."""

from __future__ import annotations

from greenroom.cli.terminal import console, note, printable
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Part
from greenroom.records.event import Event

_SHOWN_CHARS = 600


class EventLines:
    """Prints events when they arrive: text to standard output, everything else to standard error.

    If several agents answer at the same time, the text of the first is printed while it streams. The others' events are
    printed when that message is complete, as whole messages, so that no text is printed twice.
    """

    def __init__(self, *, shows_user: bool = False) -> None:
        self.has_failed = False
        """Whether an event carried an error."""
        self._shows_user = shows_user
        self._author = ""
        """The author of the last event that was printed."""
        self._streaming: tuple[str, str | None] | None = None
        """The author and the branch whose message is streaming."""
        self._streamed = ""
        """The text of that message that was printed, and its thoughts."""
        self._streamed_thoughts = ""
        self._held: list[Event] = []
        """Events of other agents, until that message is complete."""

    def show(self, event: Event) -> None:
        source = (event.author, event.branch)
        if self._streaming not in (None, source):
            if not event.partial:
                self._held.append(event)
            return

        self._streaming = source if event.partial else None
        self._print(event)
        if self._streaming is None:
            self._print_held()

    def _print_held(self) -> None:
        held = self._held
        self._held = []
        for event in held:
            self._print(event)

    def _print(self, event: Event) -> None:
        if event.author == "user" and not self._shows_user:
            return

        parts = (event.content.parts if event.content else None) or []
        if (parts or event.error_code) and event.author != self._author:
            self._author = event.author
            note(f"{event.author}:", "bold cyan")

        text = "".join(part.text or "" for part in parts if not part.thought)
        thoughts = "".join(part.text or "" for part in parts if part.thought)
        if event.partial:
            self._print_chunk(text, thoughts)
            return

        self._print_whole(text, thoughts)
        for part in parts:
            line = _line(part, event.long_running_tool_ids or [])
            if line is not None:
                note(line)
        if event.error_code is not None:
            self.has_failed = True
            note(f"{event.error_code}: {event.error_message or 'no details'}", "red")

    def forget_author(self) -> None:
        """Names the author of the next event even if the last one had the same."""
        self._author = ""

    def end_line(self) -> None:
        """Ends the line of a message that was cut off."""
        if self._streamed or self._streamed_thoughts:
            self._streamed = ""
            self._streamed_thoughts = ""
            console("output").print()
        self._streaming = None
        self._print_held()

    def _print_chunk(self, text: str, thoughts: str) -> None:
        """Prints a piece of a message that streams."""
        if thoughts:
            console("notes").print(printable(thoughts), style="dim italic", markup=False, end="")
            self._streamed_thoughts += thoughts
        if text:
            if self._streamed_thoughts and not self._streamed:
                console("notes").print()
            console("output").print(printable(text), markup=False, end="")
            console("output").file.flush()
            self._streamed += text

    def _print_whole(self, text: str, thoughts: str) -> None:
        """Prints the rest of a complete message after the pieces that were printed."""
        if thoughts and not self._streamed_thoughts:
            note(thoughts, "dim italic")

        if text.startswith(self._streamed):
            text = text[len(self._streamed) :]
        elif text:
            text = "\n" + text
        if text or self._streamed:
            console("output").print(printable(text), markup=False)
        self._streamed = ""
        self._streamed_thoughts = ""


def _line(part: Part, long_running: list[str]) -> str | None:
    """Returns the line for a part; None for text. long_running: ids of calls that are answered later."""
    if part.function_call is not None:
        call = part.function_call
        later = "  (answers later)" if call.id in long_running else ""
        return f"→ {call.name}({_arguments(call.args or {})}){later}"
    if part.function_response is not None:
        return f"← {part.function_response.name}: {_json(part.function_response.response)}"
    if part.executable_code is not None:
        return f"→ code: {_cut(part.executable_code.code or '')}"
    if part.code_execution_result is not None:
        return f"← {part.code_execution_result.outcome}: {_cut(part.code_execution_result.output or '')}"
    if part.inline_data is not None:
        size = len(part.inline_data.data or b"")
        return f"[{part.inline_data.mime_type or 'data'}, {size} bytes]"
    if part.file_data is not None:
        return f"[{part.file_data.file_uri}]"
    return None


def _arguments(args: JsonObject) -> str:
    return ", ".join(f"{name}={_json(value)}" for name, value in args.items())


def _json(value: JsonValue) -> str:
    return _cut(wire.encode(value).decode())


def _cut(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"
