"""Usage and cost of models by runs, which budgets and reports read.

`store` has the contract and its statements; `sqlite` and `postgres` run them in the sessions' database, `in_memory` in
a database of the process. `prices` computes costs.
"""
