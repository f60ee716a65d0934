"""Settings of Spanner's tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal, get_args

from greenroom.tools.google_cloud.capabilities import Capabilities
from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig

EXACT_NEAREST_NEIGHBORS = "EXACT_NEAREST_NEIGHBORS"
APPROXIMATE_NEAREST_NEIGHBORS = "APPROXIMATE_NEAREST_NEIGHBORS"
NearestNeighborsAlgorithm = Literal["EXACT_NEAREST_NEIGHBORS", "APPROXIMATE_NEAREST_NEIGHBORS"]
DEFAULT_TOP_K = 4


@dataclass(kw_only=True)
class SpannerCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of Spanner's tools."""

    default_scopes: ClassVar[tuple[str, ...]] = (
        "https://www.googleapis.com/auth/spanner.admin",
        "https://www.googleapis.com/auth/spanner.data",
    )


class QueryResultMode(Enum):
    """The form of a row of `execute_sql`."""

    DEFAULT = "default"
    """The list of its values."""
    DICT_LIST = "dict_list"
    """A map by the names of the columns."""


@dataclass(kw_only=True)
class TableColumn:
    """A column of a vector store's table."""

    name: str
    type: str
    """Of the database's SQL dialect, such as `STRING(MAX)` or `int8`."""
    is_nullable: bool = True


@dataclass(kw_only=True)
class VectorSearchIndexSettings:
    """The vector index of a vector store's table."""

    index_name: str
    additional_key_columns: Sequence[str] | None = None
    additional_storing_columns: Sequence[str] | None = None
    tree_depth: int = 2
    num_leaves: int = 1000
    num_branches: int | None = None


@dataclass(kw_only=True)
class SpannerVectorStoreSettings:
    """A table that `vector_store_similarity_search` searches. Raises ValueError."""

    project_id: str
    instance_id: str
    database_id: str
    table_name: str
    content_column: str
    embedding_column: str
    vector_length: int
    """The number of dimensions of the vectors."""
    vertex_ai_embedding_model_name: str
    """The model that embeds what is searched for; its client is configured by the environment."""
    selected_columns: Sequence[str] = ()
    """The columns of a result; default: content_column. The distance is added."""
    nearest_neighbors_algorithm: NearestNeighborsAlgorithm = "EXACT_NEAREST_NEIGHBORS"
    top_k: int = DEFAULT_TOP_K
    distance_type: str = "COSINE"
    """COSINE, DOT_PRODUCT or EUCLIDEAN."""
    num_leaves_to_search: int | None = None
    """The number of leaves of the index that an approximate search reads."""
    additional_filter: str | None = None
    """A condition in SQL, used as it is."""
    vector_search_index_settings: VectorSearchIndexSettings | None = None
    """This field, and the two below, describe the table; a search does not use them."""
    additional_columns_to_setup: Sequence[TableColumn] | None = None
    primary_key_columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.vector_length <= 0:
            raise ValueError(f"vector_length must be positive, not {self.vector_length}")
        if self.nearest_neighbors_algorithm not in get_args(NearestNeighborsAlgorithm):
            raise ValueError(f"Unknown nearest_neighbors_algorithm {self.nearest_neighbors_algorithm!r}")
        if not self.selected_columns:
            self.selected_columns = [self.content_column]

        columns = {self.content_column, self.embedding_column}
        columns.update(column.name for column in self.additional_columns_to_setup or ())
        for name in self.primary_key_columns or ():
            if name not in columns:
                raise ValueError(f"primary_key_columns: the table has no column {name!r}")


@dataclass(kw_only=True)
class SpannerToolSettings:
    """Settings of Spanner's tools."""

    capabilities: Sequence[Capabilities] = (Capabilities.DATA_READ,)
    """Without DATA_READ there are only the tools that describe tables."""
    max_executed_query_result_rows: int = 50
    """More rows of a result are left out."""
    query_result_mode: QueryResultMode = QueryResultMode.DEFAULT
    database_role: str | None = None
    """The role of the sessions, for fine-grained access control."""
    vector_store_settings: SpannerVectorStoreSettings | None = None
    """Adds `vector_store_similarity_search`."""

    def __post_init__(self) -> None:
        self.query_result_mode = QueryResultMode(self.query_result_mode)

    @property
    def can_read_data(self) -> bool:
        return Capabilities.DATA_READ in self.capabilities

    @property
    def max_rows(self) -> int:
        """A limit that is no limit is the default."""
        return self.max_executed_query_result_rows if self.max_executed_query_result_rows > 0 else 50
