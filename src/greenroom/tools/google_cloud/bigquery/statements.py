"""Builds the SQL of BigQuery's forecasts and analyses. Names and texts of a model are checked or escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.errors import ToolError

FORECAST_MODEL = "TimesFM 2.0"
CONFIDENCE_LEVEL = 0.95
PRUNING_METHODS = ("NO_PRUNING", "PRUNE_REDUNDANT_INSIGHTS")

_TABLE = re.compile(r"[A-Za-z0-9_.:-]+")
_COLUMN = re.compile(r"[A-Za-z0-9_-]+")


def is_query(source: str) -> bool:
    """Whether it is a query, not the id of a table."""
    return source.strip().upper().startswith(("SELECT", "WITH"))


def table_of(name: str) -> str:
    """The id of a table in backticks. Raises ToolError."""
    if not _TABLE.fullmatch(name):
        raise ToolError(f"{name!r} is neither the id of a table nor a SELECT statement")
    return f"`{name}`"


def rows_of(source: str) -> str:
    """A query for all rows of a table, or the query itself, whose dry run has shown that it is one statement."""
    return source if is_query(source) else f"SELECT * FROM {table_of(source)}"


def forecast(source: str, timestamp_column: str, data_column: str, horizon: int, id_columns: Sequence[str]) -> str:
    arguments = [
        f"({source})" if is_query(source) else f"TABLE {table_of(source)}",
        f"data_col => {_column_text(data_column)}",
        f"timestamp_col => {_column_text(timestamp_column)}",
        f"model => '{FORECAST_MODEL}'",
        f"horizon => {horizon:d}",
        f"confidence_level => {CONFIDENCE_LEVEL}",
    ]
    if id_columns:
        arguments.append(f"id_cols => {_column_list(id_columns)}")
    return f"SELECT * FROM AI.FORECAST({', '.join(arguments)})"


def contribution_model(
    name: str, source: str, metric: str, dimensions: Sequence[str], test_column: str, top: int, pruning: str
) -> str:
    if pruning.upper() not in PRUNING_METHODS:
        raise ToolError(f"Unknown pruning_method {pruning!r}; known: {', '.join(PRUNING_METHODS)}")
    options = [
        "MODEL_TYPE = 'CONTRIBUTION_ANALYSIS'",
        f"CONTRIBUTION_METRIC = {_text(metric)}",
        f"IS_TEST_COL = {_column_text(test_column)}",
        f"DIMENSION_ID_COLS = {_column_list(dimensions)}",
        f"TOP_K_INSIGHTS_BY_APRIORI_SUPPORT = {top:d}",
        f"PRUNING_METHOD = '{pruning.upper()}'",
    ]
    return _temporary_model(name, options, source)


def insights(model: str) -> str:
    return f"SELECT * FROM ML.GET_INSIGHTS(MODEL {model})"


def anomaly_model(
    name: str, source: str, timestamp_column: str, data_column: str, horizon: int, id_columns: Sequence[str]
) -> str:
    options = [
        "MODEL_TYPE = 'ARIMA_PLUS'",
        f"TIME_SERIES_TIMESTAMP_COL = {_column_text(timestamp_column)}",
        f"TIME_SERIES_DATA_COL = {_column_text(data_column)}",
        f"HORIZON = {horizon:d}",
    ]
    if id_columns:
        options.append(f"TIME_SERIES_ID_COL = {_column_list(id_columns)}")
    return _temporary_model(name, options, source)


def anomalies(
    model: str, threshold: float, target: str | None, timestamp_column: str, id_columns: Sequence[str]
) -> str:
    arguments = [f"MODEL {model}", f"STRUCT({float(threshold)!r} AS anomaly_prob_threshold)"]
    if target:
        arguments.append(f"({rows_of(target)})")
    order = ", ".join(f"`{_column(name)}`" for name in [*id_columns, timestamp_column])
    return f"SELECT * FROM ML.DETECT_ANOMALIES({', '.join(arguments)}) ORDER BY {order}"


def _temporary_model(name: str, options: list[str], source: str) -> str:
    return f"CREATE TEMP MODEL {name} OPTIONS ({', '.join(options)}) AS {rows_of(source)}"


def _column(name: str) -> str:
    if not _COLUMN.fullmatch(name):
        raise ToolError(f"{name!r} is not the name of a column")
    return name


def _column_text(name: str) -> str:
    return f"'{_column(name)}'"


def _column_list(names: Sequence[str]) -> str:
    return f"[{', '.join(_column_text(name) for name in names)}]"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
