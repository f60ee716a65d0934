"""Session stores.

`service` is the contract; `from_uri` chooses a store, `in_memory` is one by itself, and `adk_methods` fits those that
were written for ADK. All others are `cached_service`: a cache (`session_cache`) on a `backend`, which is one of
`sqlite` and `postgres` (on `sql` with `sql_queries`), `firestore` and `vertex` (with `remote`).

`arguments` checks what callers give, `prepared_event` is an event to store, `stored_event` its form in databases.
`cached_session` is a session in memory, with `frozen` values, and `caller_session` updates the copies that callers
hold. `adk_database` reads databases of google-adk.
"""
