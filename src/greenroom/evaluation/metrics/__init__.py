"""Metrics that score agents.

`metric` is the contract, and `by_name` finds a metric. `match` and `counts` compare with what was
expected; `judged` asks a model, by way of `judge`.
"""
