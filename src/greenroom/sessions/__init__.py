"""Session stores.

`service` is the contract; `from_uri` chooses a store, `in_memory` is a store of its own, and `adk_methods` adapts
services that were written for ADK. All others are `cached_service`: a cache (`session_cache`) on a `backend`, which is
one of `sqlite` and `postgres` (on `sql` with `sql_queries`), `firestore` and `vertex` (with `remote`).

`arguments` checks callers' arguments, `prepared_event` is an event to store, `stored_event` its form in databases.
`cached_session` is a session in memory, with `frozen` values, and `caller_session` updates the callers' copies.
`adk_database` reads databases of google-adk.
"""
