"""Redaction of texts: what is found, and what replaces it.

`patterns` has the regular expressions, ready-made ones among them; `contents` replaces what is found in messages and in
JSON. Both serve guardrails, which check what goes through a run, and `rules`, which an app applies to all that is
stored.
"""
