"""Metrics that score agents.

`metric` is the contract, and `by_name` finds a metric. `match` and `counts` compare with the expected behaviour;
`judged` asks a model, through `judge`.
"""
