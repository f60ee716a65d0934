"""Looking things up in local files."""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.errors import AgentConfigError, ModelError
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.retrieval import files_retrieval
from greenroom.tools.retrieval.files_retrieval import FilesRetrieval
from tests.agents.talk import Talk, call


def over(folder: Path, **options: Any) -> FilesRetrieval:
    return FilesRetrieval(name="library", description="Our files.", input_dir=folder, **options)


async def look_up(tool: FilesRetrieval, query: str | None) -> dict[str, Any]:
    """The response that the model gets."""
    args = {} if query is None else {"query": query}
    model = ScriptedModel([call("library", **args), "ok"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[tool])).say("look it up")
    (response,) = events[1].get_function_responses()
    assert response.response is not None
    return response.response


async def found(tool: FilesRetrieval, query: str) -> list[tuple[str, str, str]]:
    response = await look_up(tool, query)
    return [(hit["file"], hit["position"], hit["text"]) for hit in response.get("passages", [])]


def write(folder: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


async def test_one_parameter_is_declared_and_required(tmp_path: Path) -> None:
    model = ScriptedModel(["ok"])
    await Talk(LlmAgent(name="a", model=model, tools=[over(tmp_path)])).say("hi")
    (declaration,) = model.requests[0].function_declarations()
    assert (declaration.name, declaration.description) == ("library", "Our files.")
    parameters = declaration.json_schema()
    assert {name: schema["type"] for name, schema in parameters["properties"].items()} == {"query": "string"}
    assert parameters["required"] == ["query"]


async def test_passages_come_with_file_and_position_and_the_best_first(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "rules.txt": "Pets\nDogs stay outside. Cats come in.\n",
            "sub/cats.md": "# Cats\nA cat sleeps. Cats purr.\n",
            "fish.txt": "Fish swim.\n",
        },
    )
    assert await found(over(tmp_path), "cats that purr") == [
        ("sub/cats.md", "lines 1-2", "# Cats\nA cat sleeps. Cats purr."),
        ("rules.txt", "lines 1-2", "Pets\nDogs stay outside. Cats come in."),
    ]


async def test_a_query_that_nothing_matches_gets_a_text_and_a_missing_one_an_error(tmp_path: Path) -> None:
    write(tmp_path, **{"a.txt": "bread"})
    response = await look_up(over(tmp_path), "zeppelin")
    assert "zeppelin" in response["result"]
    for query in (None, "", "  "):
        assert "query" in (await look_up(over(tmp_path), query))["error"]
    assert "result" in await look_up(over(tmp_path), '?! "*')


async def test_words_are_found_whatever_their_case_ending_accents_and_script(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "en.txt": "Refunds are paid within a week.",
            "fr.txt": "Le café est fermé.",
            "de.txt": "Die Straße ist gesperrt.",
            "ja.txt": "図書館は月曜日に休みます。",
            "ru.txt": "Библиотека закрыта.",
            "hi.txt": "हिन्दी की किताब",
            "old.txt": "Na\xefve".encode("latin-1"),
            "wide.txt": "Zwölf".encode("utf-16"),
        },
    )
    tool = over(tmp_path)
    for query, file in (
        ("REFUND", "en.txt"),
        ("cafe", "fr.txt"),
        ("STRASSE", "de.txt"),
        ("月曜", "ja.txt"),
        ("БИБЛИОТЕКА", "ru.txt"),
        ("हिन्दी", "hi.txt"),
        ("naive", "old.txt"),
        ("zwölf", "wide.txt"),
    ):
        assert [hit[0] for hit in await found(tool, query)] == [file], query


async def test_a_files_name_is_found_too(tmp_path: Path) -> None:
    write(tmp_path, **{"holiday-plan.txt": "Two weeks.", "other.txt": "Two days."})
    assert [hit[0] for hit in await found(over(tmp_path), "holiday")] == ["holiday-plan.txt"]


async def test_passages_that_share_only_a_common_word_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, **{f"{n}.txt": f"the page number {n}" for n in range(19)}, **{"x.txt": "the unicorn"})
    assert [hit[0] for hit in await found(over(tmp_path), "the unicorn")] == ["x.txt"]
    (tmp_path / "0.txt").unlink()
    assert len(await found(over(tmp_path), "the unicorn")) == 5, "among few passages it may be what was meant"


async def test_html_is_found_by_its_visible_text_with_the_lines_of_its_source(tmp_path: Path) -> None:
    page = (
        "<html><head><title>Menu</title><style>soup {}</style></head>\n<body><script>soup()</script>\n"
        "<h1>Soup &amp; more</h1>\n<p>Hot\n<b>pea</b>s</p><br/>\n</body></html>"
    )
    write(tmp_path, **{"a.html": page})
    assert await found(over(tmp_path), "peas soup") == [("a.html", "lines 1-4", "Menu\nSoup & more\nHot peas")]


async def test_rows_of_a_table_name_their_columns(tmp_path: Path) -> None:
    write(tmp_path, **{"a.csv": 'city,note\nOslo,"cold,\nwet"\nRome,\n', "b.tsv": "city\tsea\nKiel\tyes\n"})
    tool = over(tmp_path)
    assert await found(tool, "Oslo") == [("a.csv", "lines 1-4", "city,note\ncity: Oslo; note: cold,\nwet\ncity: Rome")]
    assert await found(tool, "kiel") == [("b.tsv", "lines 1-2", "city\tsea\ncity: Kiel; sea: yes")]


async def test_values_of_json_are_found_with_their_path(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "a.json": '{"menu": [{"name": "Caf\\u00e9", "price": 3}], "a b": true}',
            "b.json": '{"broken": zebra',
            "c.jsonl": '{"who": "Ada"}\n\n{"who": "B\\u00f6rje"}\n',
        },
    )
    tool = over(tmp_path)
    assert await found(tool, "café") == [
        ("a.json", '$.menu[0].name to $["a b"]', 'menu[0].name: Café\nmenu[0].price: 3\n["a b"]: true')
    ]
    assert await found(tool, "zebra") == [("b.json", "line 1", '{"broken": zebra')]
    assert await found(tool, "börje") == [("c.jsonl", "lines 1-3", "who: Ada\nwho: Börje")]


async def test_long_files_are_cut_at_lines_with_an_overlap(tmp_path: Path) -> None:
    lines = [f"This is line number{n} of the file." for n in range(1, 101)]
    write(tmp_path, **{"a.txt": "\n".join(lines)})
    tool = over(tmp_path, passage_length=400, passage_overlap=80, max_passages=100)
    hits = await found(tool, "number1 line")
    spans = sorted(tuple(map(int, hit[1].removeprefix("lines ").split("-"))) for hit in hits)
    assert all(len(hit[2]) <= 400 for hit in hits)
    assert (spans[0][0], spans[-1][1]) == (1, 100)
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start == end - 1, "two lines of 35 characters are shared"
    for hit in hits:
        first, last = map(int, hit[1].removeprefix("lines ").split("-"))
        assert hit[2] == "\n".join(lines[first - 1 : last])
    assert len(await found(over(tmp_path, passage_length=400, passage_overlap=80), "line")) == 5


async def test_a_long_line_is_cut_at_spaces_and_nothing_is_lost(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(400)]
    write(tmp_path, **{"a.txt": " ".join(words), "b.txt": "x" * 1000})
    tool = over(tmp_path, passage_length=100, passage_overlap=20, max_passages=1)
    for word in words:
        ((file, position, text),) = await found_directly(tool, word)
        assert (file, position) == ("a.txt", "line 1")
        assert len(text) <= 100
    assert [len(text) for _, _, text in await found_directly(tool, "x" * 100)] == [100]


async def found_directly(tool: FilesRetrieval, query: str) -> list[tuple[str, str, str]]:
    response: Any = await tool.run_async(args={"query": query}, tool_context=None)  # pyright: ignore[reportArgumentType]
    return [(hit["file"], hit["position"], hit["text"]) for hit in response["passages"]]


async def test_a_markdown_section_begins_a_passage_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, **{"a.md": "# One\n" + "apple " * 20 + "\n# Two\n" + "pear " * 20})
    hits = await found(over(tmp_path, passage_length=200, passage_overlap=50), "pear")
    assert [(position, text.split("\n")[0]) for _, position, text in hits] == [("lines 3-4", "# Two")]


@pytest.mark.parametrize("on_disk", [False, True])
async def test_changes_are_noticed_at_the_next_search(tmp_path: Path, on_disk: bool) -> None:
    folder = tmp_path / "files"
    write(folder, **{"a.txt": "apple", "b.txt": "pear"})
    tool = over(folder, index_path=tmp_path / "index" / "files.db" if on_disk else None)
    assert [hit[0] for hit in await found(tool, "apple pear")] == ["a.txt", "b.txt"]
    write(folder, **{"a.txt": "quince", "c.txt": "apple"})
    (folder / "b.txt").unlink()
    assert [hit[0] for hit in await found(tool, "apple")] == ["c.txt"]
    assert [hit[0] for hit in await found(tool, "quince")] == ["a.txt"]
    assert await found(tool, "pear") == []


async def test_an_index_on_disk_is_used_again_and_only_changed_files_are_read(tmp_path: Path) -> None:
    folder, index = tmp_path / "files", tmp_path / "files.db"
    write(folder, **{"a.txt": "apple", "b.txt": "pear"})
    assert len(await found(over(folder, index_path=index), "apple")) == 1
    before = (folder / "a.txt").stat()
    write(folder, **{"a.txt": "grape", "b.txt": "apple pie"})
    os.utime(folder / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))  # looks as it did, so nobody reads it
    assert sorted(hit[0] for hit in await found(over(folder, index_path=index), "apple")) == ["a.txt", "b.txt"]
    again = over(folder, index_path=index, passage_length=500)
    assert [hit[0] for hit in await found(again, "grape")] == ["a.txt"], "passages of another length are other passages"
    assert [hit[0] for hit in await found(again, "apple")] == ["b.txt"]


async def test_an_index_of_another_folder_is_made_again(tmp_path: Path) -> None:
    write(tmp_path, **{"one/a.txt": "apple", "two/a.txt": "pears"})
    os.utime(tmp_path / "one/a.txt", ns=(1, 1))
    os.utime(tmp_path / "two/a.txt", ns=(1, 1))
    assert await found(over(tmp_path / "one", index_path=tmp_path / "i.db"), "apple")
    assert await found(over(tmp_path / "two", index_path=tmp_path / "i.db"), "pears")


async def test_what_is_hidden_linked_from_outside_binary_or_of_another_type_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write(
        folder,
        **{".hidden.txt": "apple", ".git/a.txt": "apple", "a.bin": "apple", "b.txt": b"apple\0", "seen.TXT": "apple"},
    )
    write(tmp_path, **{"secret.txt": "apple"})
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "dangling.txt").symlink_to(tmp_path / "nothing")
    assert [hit[0] for hit in await found(over(folder), "apple")] == ["seen.TXT"]


async def test_files_beyond_the_limits_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, **{"a.txt": "apple " * 100, "b.txt": "apple", "c.txt": "apple"})
    with caplog.at_level(logging.WARNING, "greenroom.tools"):
        assert [hit[0] for hit in await found(over(tmp_path, max_file_bytes=99, max_files=2), "apple")] == ["b.txt"]
    assert "a.txt is not searched" in caplog.text
    assert "more than 2 files" in caplog.text


async def test_a_single_file_can_be_searched(tmp_path: Path) -> None:
    write(tmp_path, **{"a.txt": "apple", "b.txt": "apple"})
    assert await found(over(tmp_path / "a.txt"), "apple") == [("a.txt", "line 1", "apple")]


async def test_an_index_that_fails_half_way_keeps_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, index = tmp_path / "files", tmp_path / "i.db"
    write(folder, **{"a.txt": "apple"})
    tool = over(folder, index_path=index)
    assert await found(tool, "apple")
    write(folder, **{"a.txt": "apples", "b.txt": "apple"})

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(files_retrieval, "passages", broken)
        with pytest.raises(MemoryError):
            await tool.run_async(args={"query": "apple"}, tool_context=None)  # pyright: ignore[reportArgumentType]
    connection = sqlite3.connect(index)
    assert connection.execute("SELECT file, text FROM passage").fetchall() == [("a.txt", "apple")]
    connection.close()
    assert len(await found(tool, "apple")) == 2


class Topics(BaseEmbeddings):
    """A component for each topic, which many words may mean."""

    def __init__(self, model: str = "topics") -> None:
        super().__init__(model)
        self.embedded: list[str] = []
        self.fails = False

    async def embed_batch(self, texts: Sequence[str], *, is_query: bool) -> Sequence[Sequence[float]]:
        if self.fails:
            raise ModelError("the provider is down", model=self.model)
        self.embedded += texts
        topics = (("dog", "puppy"), ("car", "vehicle"), ("paid", "salary"))
        return [[0.1, *(float(any(word in text.lower() for word in topic)) for topic in topics)] for text in texts]


async def test_passages_are_found_by_their_meaning_and_embedded_once(tmp_path: Path) -> None:
    folder, index = tmp_path / "files", tmp_path / "index.db"
    write(folder, **{"a.txt": "Dogs are welcome.", "b.txt": "Cars park outside.", "c.txt": "You are paid on Fridays."})
    topics = Topics()
    tool = over(folder, index_path=index, embeddings=topics, max_passages=1)
    for query, file in (("May I bring a puppy?", "a.txt"), ("vehicle", "b.txt"), ("When do I get my salary?", "c.txt")):
        assert [hit[0] for hit in await found(tool, query)] == [file], query
    assert len(topics.embedded) == 6

    write(folder, **{"b.txt": "The puppy parks outside."})
    (folder / "a.txt").unlink()
    assert [hit[0] for hit in await found(tool, "dog")] == ["b.txt"]
    assert topics.embedded[6:] == ["The puppy parks outside.", "dog"]

    again = Topics()
    assert (await found(over(folder, index_path=index, embeddings=again), "dog"))[0][0] == "b.txt"
    assert again.embedded == ["dog"]
    other = Topics("others")
    assert (await found(over(folder, index_path=index, embeddings=other), "dog"))[0][0] == "b.txt"
    assert len(other.embedded) == 3


async def test_words_are_enough_while_the_embeddings_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, **{"a.txt": "Dogs are welcome.", "b.txt": "Cars park outside."})
    topics = Topics()
    topics.fails = True
    tool = over(tmp_path, embeddings=topics)
    assert [hit[0] for hit in await found(tool, "where do cars park")] == ["b.txt"]
    assert "is searched by words only: the provider is down" in caplog.text
    topics.fails = False
    assert (await found(tool, "vehicle"))[0][0] == "b.txt"


def test_unknown_embeddings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentConfigError, match=r"no embeddings 'word2vec'.*local/MODEL"):
        over(tmp_path, embeddings="word2vec")
    assert over(tmp_path, embeddings="local/smollm2-135m")


def test_a_folder_that_is_not_there_and_an_overlap_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentConfigError, match="does not exist"):
        over(tmp_path / "nowhere")
    with pytest.raises(AgentConfigError, match="half of passage_length"):
        over(tmp_path, passage_length=100, passage_overlap=51)
