"""Evaluation: agents are run on sets of cases, and their replies scored by metrics.

`records` are sets and results, `files` stores them, and `config` chooses the metrics. `run` runs
and scores cases; `evaluate` and `agent_evaluator` are the calls for it. `simulation` and
`tool_stubs` play users and tools, `recorded_case` and `replay` repeat recorded conversations.
`comparison`, `statistics`, `reports` and `html_report` show results, and `optimize` improves
instructions.
"""
