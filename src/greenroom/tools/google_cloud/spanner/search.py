"""Builds the SQL of Spanner's similarity search.

Source: "Find K-nearest neighbors" and "Find approximate nearest neighbors" of Spanner's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.spanner.config import (
    APPROXIMATE_NEAREST_NEIGHBORS,
    DEFAULT_TOP_K,
    EXACT_NEAREST_NEIGHBORS,
    SpannerVectorStoreSettings,
)
from greenroom.tools.google_cloud.spanner.filters import check_identifier

VERTEX_MODEL = "vertex_ai_embedding_model_name"
GOOGLESQL_MODEL = "spanner_googlesql_embedding_model_name"
POSTGRESQL_ENDPOINT = "spanner_postgresql_vertex_ai_embedding_model_endpoint"
DIMENSIONS = "output_dimensionality"
DEFAULT_LEAVES = 1000

_ENDPOINT = re.compile(r"projects/[\w-]+/locations/[\w-]+/publishers/[\w-]+/models/[\w.-]+")
_DISTANCES = {
    "COSINE": ("COSINE_DISTANCE", "APPROX_COSINE_DISTANCE", "spanner.cosine_distance"),
    "EUCLIDEAN": ("EUCLIDEAN_DISTANCE", "APPROX_EUCLIDEAN_DISTANCE", "spanner.euclidean_distance"),
    "DOT_PRODUCT": ("DOT_PRODUCT", "APPROX_DOT_PRODUCT", "spanner.dot_product"),
}
"""The functions by type: exact, approximate, and of PostgreSQL."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Raises ToolError."""

    top_k: int = DEFAULT_TOP_K
    distance_type: str = "COSINE"
    is_approximate: bool = False
    num_leaves_to_search: int = DEFAULT_LEAVES

    def __post_init__(self) -> None:
        if self.distance_type not in _DISTANCES:
            raise ToolError(f"Unknown distance_type {self.distance_type!r}; known: {', '.join(_DISTANCES)}")
        if self.top_k < 1 or self.num_leaves_to_search < 1:
            raise ToolError("top_k and num_leaves_to_search must be at least 1")

    @classmethod
    def read(cls, options: Mapping[str, JsonValue]) -> SearchOptions:
        """From those of a model."""
        algorithm = options.get("nearest_neighbors_algorithm") or EXACT_NEAREST_NEIGHBORS
        if algorithm not in (EXACT_NEAREST_NEIGHBORS, APPROXIMATE_NEAREST_NEIGHBORS):
            raise ToolError(f"Unknown nearest_neighbors_algorithm {algorithm!r}")
        return cls(
            top_k=_integer(options, "top_k", DEFAULT_TOP_K),
            distance_type=str(options.get("distance_type") or "COSINE"),
            is_approximate=algorithm == APPROXIMATE_NEAREST_NEIGHBORS,
            num_leaves_to_search=_integer(options, "num_leaves_to_search", DEFAULT_LEAVES),
        )


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """The model that embeds a query: of Vertex AI, of the database, or an endpoint that PostgreSQL calls."""

    kind: str
    model: str
    dimensions: int | None = None

    @classmethod
    def read(cls, options: Mapping[str, JsonValue]) -> EmbeddingOptions:
        """From those of a model. Raises ToolError unless they name one model."""
        kinds = [kind for kind in (VERTEX_MODEL, GOOGLESQL_MODEL, POSTGRESQL_ENDPOINT) if options.get(kind)]
        if len(kinds) != 1:
            raise ToolError(
                f"embedding_options must have one of {VERTEX_MODEL}, {GOOGLESQL_MODEL} and {POSTGRESQL_ENDPOINT}"
            )
        kind = kinds[0]
        model = str(options[kind])
        if kind == GOOGLESQL_MODEL:
            check_identifier(model)
        if kind == POSTGRESQL_ENDPOINT and not _ENDPOINT.fullmatch(model):
            raise ToolError(f"{POSTGRESQL_ENDPOINT} must be projects/…/locations/…/publishers/…/models/…")

        dimensions = _integer(options, DIMENSIONS, 0) or None
        if dimensions is not None and kind == GOOGLESQL_MODEL:
            raise ToolError(f"{DIMENSIONS} is not possible with {GOOGLESQL_MODEL}")
        return cls(kind=kind, model=model, dimensions=dimensions)

    def check_dialect(self, *, is_postgresql: bool) -> None:
        other = GOOGLESQL_MODEL if is_postgresql else POSTGRESQL_ENDPOINT
        if self.kind == other:
            dialect = "PostgreSQL" if is_postgresql else "GoogleSQL"
            raise ToolError(f"{other} is not possible in a database with the {dialect} dialect")

    def statement(self, text: str) -> tuple[str, JsonObject]:
        """The query that makes the database embed a text, and its parameters."""
        if self.kind == GOOGLESQL_MODEL:
            content = "(SELECT CAST(@query AS STRING) AS content)"
            return f"SELECT embeddings.values FROM ML.PREDICT(MODEL {self.model}, {content})", {"query": text}

        instances = "'instances', JSONB_BUILD_ARRAY(JSONB_BUILD_OBJECT('content', $1::TEXT))"
        parameters = ""
        if self.dimensions is not None:
            parameters = f", 'parameters', JSONB_BUILD_OBJECT('outputDimensionality', {self.dimensions:d})"
        predicted = f"spanner.ML_PREDICT_ROW('{self.model}', JSONB_BUILD_OBJECT({instances}{parameters}))"
        values = f"{predicted} -> 'predictions' -> 0 -> 'embeddings' -> 'values'"
        return f"SELECT spanner.FLOAT32_ARRAY({values})", {"p1": text}


@dataclass(frozen=True, kw_only=True)
class SimilaritySearch:
    """Names and the filter are put into the statement as they are: those of a model must be checked before."""

    table: str
    embedding_column: str
    columns: Sequence[str]
    additional_filter: str | None
    options: SearchOptions

    @classmethod
    def of_store(cls, store: SpannerVectorStoreSettings) -> SimilaritySearch:
        leaves = DEFAULT_LEAVES if store.num_leaves_to_search is None else store.num_leaves_to_search
        return cls(
            table=store.table_name,
            embedding_column=store.embedding_column,
            columns=store.selected_columns,
            additional_filter=store.additional_filter,
            options=SearchOptions(
                top_k=store.top_k,
                distance_type=store.distance_type,
                is_approximate=store.nearest_neighbors_algorithm == APPROXIMATE_NEAREST_NEIGHBORS,
                num_leaves_to_search=leaves,
            ),
        )

    def statement(self, vector: list[JsonValue], *, is_postgresql: bool) -> tuple[str, JsonObject]:
        """The query for the nearest rows, the distance last in each, and its parameters. Raises ToolError."""
        columns = ", ".join([*self.columns, f"{self._distance(is_postgresql)} AS distance"])
        conditions: list[str] = []
        if self.options.is_approximate:
            conditions.append(f"{self.embedding_column} IS NOT NULL")
        if self.additional_filter:
            conditions.append(f"({self.additional_filter})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""

        # A larger dot product is nearer; a larger distance is farther.
        order = "distance DESC" if self.options.distance_type == "DOT_PRODUCT" else "distance"
        sql = f"SELECT {columns} FROM {self.table}{where} ORDER BY {order} LIMIT {self.options.top_k:d}"
        return sql, {"p1" if is_postgresql else "embedding": vector}

    def _distance(self, is_postgresql: bool) -> str:
        exact, approximate, postgresql = _DISTANCES[self.options.distance_type]
        if is_postgresql:
            if self.options.is_approximate:
                raise ToolError(f"{APPROXIMATE_NEAREST_NEIGHBORS} is not possible with the PostgreSQL dialect")
            return f"{postgresql}({self.embedding_column}, $1)"
        if not self.options.is_approximate:
            return f"{exact}({self.embedding_column}, @embedding)"
        leaves = f'{{"num_leaves_to_search": {self.options.num_leaves_to_search:d}}}'
        return f"{approximate}({self.embedding_column}, @embedding, options => JSON '{leaves}')"


def _integer(options: Mapping[str, JsonValue], key: str, default: int) -> int:
    """Models write numbers as text, too."""
    value = options.get(key)
    if value is None or value == "":
        return default
    try:
        return int(str(value))
    except ValueError:
        raise ToolError(f"{key} must be an integer, not {value!r}") from None
