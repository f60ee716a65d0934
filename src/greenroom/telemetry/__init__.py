"""Spans of runs, and the metrics and logs derived from them."""
