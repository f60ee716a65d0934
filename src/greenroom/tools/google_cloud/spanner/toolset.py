"""The toolset of Spanner's databases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from greenroom.embeddings.gemini import GeminiEmbeddings
from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.google_tool import GoogleTool, success
from greenroom.tools.google_cloud.rest_api import GoogleRestApi
from greenroom.tools.google_cloud.spanner.config import (
    QueryResultMode,
    SpannerCredentialsConfig,
    SpannerToolSettings,
    SpannerVectorStoreSettings,
)
from greenroom.tools.google_cloud.spanner.filters import check_filter, check_identifier
from greenroom.tools.google_cloud.spanner.search import (
    DIMENSIONS,
    VERTEX_MODEL,
    EmbeddingOptions,
    SearchOptions,
    SimilaritySearch,
)
from greenroom.tools.google_cloud.spanner.sessions import SpannerSession, SpannerSessions
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

DEFAULT_SPANNER_TOOL_NAME_PREFIX = "spanner"
SPANNER_URL = "https://spanner.googleapis.com"

_EXECUTE_SQL = "Executes a query in a Spanner database and returns the rows of the result. Nothing can be written."
_ROW_FORMS = {
    QueryResultMode.DEFAULT: "Each row is the list of its values.",
    QueryResultMode.DICT_LIST: "Each row is a map by the names of the columns.",
}


class SpannerToolset(GoogleCloudToolset):
    """Describes the tables of Spanner's databases, and reads and searches them.

    credentials_config: without it the machine's own credentials are used. base_url: of another endpoint of the API.
    """

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: SpannerCredentialsConfig | None = None,
        spanner_tool_settings: SpannerToolSettings | None = None,
        tool_name_prefix: str | None = DEFAULT_SPANNER_TOOL_NAME_PREFIX,
        base_url: str = SPANNER_URL,
    ) -> None:
        settings = spanner_tool_settings or SpannerToolSettings()
        api = GoogleRestApi(f"{base_url.rstrip('/')}/v1")
        sessions = SpannerSessions(api, settings.database_role)

        tables = _Tables(sessions)
        functions: list[Callable[..., Any]] = [
            tables.list_table_names,
            tables.list_table_indexes,
            tables.list_table_index_columns,
            tables.list_named_schemas,
            tables.get_table_schema,
        ]
        if settings.can_read_data:
            queries = _Queries(sessions, settings)
            functions += [queries.execute_sql, queries.similarity_search]
            if settings.vector_store_settings is not None:
                functions.append(queries.vector_store_similarity_search)

        descriptions = {"execute_sql": f"{_EXECUTE_SQL} {_ROW_FORMS[settings.query_result_mode]}"}
        tools = [
            GoogleTool(
                one,
                credentials_config=credentials_config,
                on_interrupt="retry",
                description=descriptions.get(one.__name__),
            )
            for one in functions
        ]
        super().__init__(tools, [api], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)


class _Tables:
    """The functions that describe tables. Models see their docstrings."""

    def __init__(self, sessions: SpannerSessions) -> None:
        self._sessions = sessions

    async def list_table_names(
        self,
        project_id: str,
        instance_id: str,
        database_id: str,
        credentials: Credentials | None,
        named_schema: str = "",
    ) -> JsonObject:
        """Lists the names of the tables in a Spanner database.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
            named_schema: The schema of the tables; the database's default schema if it is empty.
        """
        columns = "SELECT table_name FROM information_schema.tables"
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            if await session.is_postgresql():
                sql = f"{columns} WHERE table_schema = $1 AND spanner_state = 'COMMITTED'"
                found = await session.query(sql, {"p1": named_schema or "public"}, {"p1": "STRING"})
            else:
                sql = f"{columns} WHERE table_schema = @schema AND spanner_state = 'COMMITTED'"
                found = await session.query(sql, {"schema": named_schema}, {"schema": "STRING"})
        return success([row[0] for row in found.rows])

    async def list_table_indexes(
        self, project_id: str, instance_id: str, database_id: str, table_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Lists the indexes of a table in a Spanner database, the primary key included.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
            table_id: The name of the table.
        """
        sql = (
            "SELECT INDEX_NAME, TABLE_SCHEMA, INDEX_TYPE, PARENT_TABLE_NAME, IS_UNIQUE, IS_NULL_FILTERED, INDEX_STATE "
            "FROM INFORMATION_SCHEMA.INDEXES WHERE TABLE_NAME = @table"
        )
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            await _refuse_postgresql(session)
            found = await session.query(sql, {"table": table_id}, {"table": "STRING"})
        return success(found.records())

    async def list_table_index_columns(
        self, project_id: str, instance_id: str, database_id: str, table_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Lists the columns of each index of a table in a Spanner database.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
            table_id: The name of the table.
        """
        sql = (
            "SELECT INDEX_NAME, TABLE_SCHEMA, COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, SPANNER_TYPE "
            "FROM INFORMATION_SCHEMA.INDEX_COLUMNS WHERE TABLE_NAME = @table"
        )
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            await _refuse_postgresql(session)
            found = await session.query(sql, {"table": table_id}, {"table": "STRING"})
        return success(found.records())

    async def list_named_schemas(
        self, project_id: str, instance_id: str, database_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Lists the named schemas of a Spanner database.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
        """
        sql = (
            "SELECT SCHEMA_NAME FROM INFORMATION_SCHEMA.SCHEMATA "
            "WHERE SCHEMA_NAME NOT IN ('', 'INFORMATION_SCHEMA', 'SPANNER_SYS')"
        )
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            await _refuse_postgresql(session)
            found = await session.query(sql)
        return success([row[0] for row in found.rows])

    async def get_table_schema(
        self,
        project_id: str,
        instance_id: str,
        database_id: str,
        table_name: str,
        credentials: Credentials | None,
        named_schema: str = "",
    ) -> JsonObject:
        """Describes a table of a Spanner database: its columns with types and keys, its parent table and its policies.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
            table_name: The name of the table.
            named_schema: The schema of the table; the default schema if it is empty.
        """
        where = "WHERE TABLE_NAME = @table AND TABLE_SCHEMA = @schema"
        columns_sql = (
            "SELECT COLUMN_NAME, SPANNER_TYPE, TABLE_SCHEMA, ORDINAL_POSITION, COLUMN_DEFAULT, IS_NULLABLE, "
            "IS_GENERATED, GENERATION_EXPRESSION, IS_STORED "
            f"FROM INFORMATION_SCHEMA.COLUMNS {where} ORDER BY ORDINAL_POSITION"
        )
        keys_sql = (
            "SELECT COLUMN_NAME, CONSTRAINT_NAME, ORDINAL_POSITION, POSITION_IN_UNIQUE_CONSTRAINT "
            f"FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE {where}"
        )
        table_sql = (
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, PARENT_TABLE_NAME, ON_DELETE_ACTION, SPANNER_STATE, "
            f"INTERLEAVE_TYPE, ROW_DELETION_POLICY_EXPRESSION FROM INFORMATION_SCHEMA.TABLES {where}"
        )
        params: JsonObject = {"table": table_name, "schema": named_schema}
        types = {"table": "STRING", "schema": "STRING"}
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            await _refuse_postgresql(session)
            columns = await session.query(columns_sql, params, types)
            keys = await session.query(keys_sql, params, types)
            table = await session.query(table_sql, params, types)

        schema: JsonObject = {str(column.pop("COLUMN_NAME")): column for column in columns.records()}
        for key in keys.records():
            column = schema.get(str(key.pop("COLUMN_NAME")))
            if column is not None:
                column.setdefault("KEY_COLUMN_USAGE", []).append(key)
        return success({"schema": schema, "metadata": table.records()})


class _Queries:
    """The functions that read data. Models see their docstrings."""

    def __init__(self, sessions: SpannerSessions, settings: SpannerToolSettings) -> None:
        self._sessions = sessions
        self._settings = settings

    async def execute_sql(
        self, project_id: str, instance_id: str, database_id: str, query: str, credentials: Credentials | None
    ) -> JsonObject:
        """Executes a query.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
            query: One statement that only reads, in the SQL dialect of the database.
        """
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            found = await session.query(query)

        is_map = self._settings.query_result_mode is QueryResultMode.DICT_LIST
        limit = self._settings.max_rows
        rows: Sequence[JsonValue] = found.records() if is_map else found.rows
        result: JsonObject = {"status": "SUCCESS", "rows": rows[:limit]}
        if len(rows) >= limit:
            result["result_is_likely_truncated"] = True
        return result

    async def similarity_search(
        self,
        project_id: str,
        instance_id: str,
        database_id: str,
        table_name: str,
        query: str,
        embedding_column_to_search: str,
        columns: list[str],
        embedding_options: dict[str, str],
        credentials: Credentials | None,
        additional_filter: str | None = None,
        search_options: dict[str, Any] | None = None,
    ) -> JsonObject:
        """Finds the rows of a Spanner table whose embeddings are nearest to a text. The last value of each row is the
        distance.

        Args:
            project_id: The Google Cloud project.
            instance_id: The Spanner instance.
            database_id: The database.
            table_name: The table.
            query: The text to search for.
            embedding_column_to_search: The column with the embeddings.
            columns: The columns to return.
            embedding_options: How the text is embedded. Exactly one of vertex_ai_embedding_model_name (a model of
                Vertex AI, such as text-embedding-005), spanner_googlesql_embedding_model_name (a model that was
                created in a GoogleSQL database) and spanner_postgresql_vertex_ai_embedding_model_endpoint (for
                PostgreSQL: projects/…/locations/…/publishers/google/models/…). Optionally output_dimensionality, the
                length of the vectors.
            additional_filter: A condition for rows: comparisons of columns with numbers, texts in single quotes,
                TRUE, FALSE or NULL by =, !=, <, <=, >, >=, LIKE, IS, IN and BETWEEN, joined by AND and OR.
            search_options: Optionally top_k (how many rows, 4 by default), distance_type (COSINE, EUCLIDEAN or
                DOT_PRODUCT), nearest_neighbors_algorithm (EXACT_NEAREST_NEIGHBORS or APPROXIMATE_NEAREST_NEIGHBORS,
                which needs a vector index) and num_leaves_to_search (of that index).
        """
        search = SimilaritySearch(
            table=check_identifier(table_name),
            embedding_column=check_identifier(embedding_column_to_search),
            columns=[check_identifier(column) for column in columns],
            additional_filter=check_filter(additional_filter) if additional_filter else None,
            options=SearchOptions.read(search_options or {}),
        )
        embedding = EmbeddingOptions.read(embedding_options)
        async with self._sessions.open(credentials, project_id, instance_id, database_id) as session:
            return await _nearest_rows(session, search, embedding, query)

    async def vector_store_similarity_search(self, query: str, credentials: Credentials | None) -> JsonObject:
        """Finds what the vector store knows about a question: the contents whose meaning is nearest to it. The last
        value of each row is the distance.

        Args:
            query: The text to search for.
        """
        store = cast("SpannerVectorStoreSettings", self._settings.vector_store_settings)
        embedding = EmbeddingOptions.read(
            {VERTEX_MODEL: store.vertex_ai_embedding_model_name, DIMENSIONS: store.vector_length}
        )
        database = (store.project_id, store.instance_id, store.database_id)
        async with self._sessions.open(credentials, *database) as session:
            return await _nearest_rows(session, SimilaritySearch.of_store(store), embedding, query)


async def _nearest_rows(
    session: SpannerSession, search: SimilaritySearch, embedding: EmbeddingOptions, text: str
) -> JsonObject:
    is_postgresql = await session.is_postgresql()
    embedding.check_dialect(is_postgresql=is_postgresql)
    vector = await _embed(session, embedding, text)
    sql, params = search.statement(vector, is_postgresql=is_postgresql)
    found = await session.query(sql, params)
    return {"status": "SUCCESS", "rows": found.rows}


async def _embed(session: SpannerSession, embedding: EmbeddingOptions, text: str) -> list[JsonValue]:
    if embedding.kind != VERTEX_MODEL:
        sql, params = embedding.statement(text)
        found = await session.query(sql, params)
        if not found.rows or not isinstance(found.rows[0][0], list):
            raise ToolError(f"{embedding.model} returned no embedding")
        return cast("list[JsonValue]", found.rows[0][0])

    model = GeminiEmbeddings(embedding.model, dimensions=embedding.dimensions)
    try:
        (vector,) = await model.embed_batch([text], is_query=True)
        return list(vector)
    finally:
        await model.close()


async def _refuse_postgresql(session: SpannerSession) -> None:
    if await session.is_postgresql():
        raise ToolError("This tool does not support databases with the PostgreSQL dialect; query information_schema")
