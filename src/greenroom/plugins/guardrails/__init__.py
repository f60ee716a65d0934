"""Guardrails: checks of what users, models and tools say and do.

`check` is the contract of a check; `patterns`, `allow_lists`, `judge` and `moderation` hold one kind of check each.
`plugin` acts on violations at each point of a run, `content_checks` applies the checks to messages, calls and results,
and `stream` keeps streamed text back until it is checked. `decisions` records what was decided.
"""
