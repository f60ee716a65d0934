"""Guardrails: checks of what users, models and tools say and do.

`check` is the contract of a check; `patterns`, `allow_lists`, `judge` and `moderation` hold one kind of check each.
`plugin` calls them in a run and acts on violations, `redaction` replaces text in contents and JSON, and `stream` keeps
streamed text back until it is checked.
"""
