"""A small MCP server: the catalogue of a library. It speaks over its input and output (stdio)."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("library", log_level="WARNING")

BOOKS = {
    "B-1": {"title": "The Dispossessed", "author": "Ursula K. Le Guin", "copies": 2},
    "B-2": {"title": "The Left Hand of Darkness", "author": "Ursula K. Le Guin", "copies": 1},
    "B-3": {"title": "Emma", "author": "Jane Austen", "copies": 0},
}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def search_books(words: str) -> dict[str, dict[str, str | int]]:
    """Finds books by words of their title or author. Gives their numbers, and how many copies are there."""
    wanted = words.lower().split()
    return {
        number: book
        for number, book in BOOKS.items()
        if all(word in f"{book['title']} {book['author']}".lower() for word in wanted)
    }


@server.tool()
def reserve_book(number: str, reader: str) -> str:
    """Reserves a copy of a book, such as B-1, for a reader."""
    book = BOOKS.get(number)
    if book is None:
        raise ToolError(f"There is no book {number}.")
    if not book["copies"]:
        raise ToolError(f"All copies of {book['title']} are lent.")
    book["copies"] = int(book["copies"]) - 1
    return f"{book['title']} is reserved for {reader}."


@server.resource("library://hours", name="opening_hours", mime_type="text/plain")
def opening_hours() -> str:
    return "Monday to Friday, nine to six."


if __name__ == "__main__":
    server.run("stdio")
