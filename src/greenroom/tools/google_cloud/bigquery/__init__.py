"""Tools for BigQuery: metadata, SQL within a write mode, forecasts and analyses, and search in the catalog."""
