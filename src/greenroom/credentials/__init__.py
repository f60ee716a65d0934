"""Credentials that agents use on behalf of users, and pending requests for them.

`service` is the contract, `adk_methods` fits services that were written for ADK. `sql` keeps credentials in SQLite and
PostgreSQL, `in_memory` in the process. `requests` are pending ones in memory, for services without a store of them.
"""
