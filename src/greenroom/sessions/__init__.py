"""Session stores.

`service` is the contract; `from_uri` chooses a store, `in_memory` is one by itself, and `adk_methods` fits those that
were written for ADK. All others are `cached_service`: a cache (`session_cache`, of `cached_session`s) on a `backend`,
which is one of `sqlite` and `postgres` (on `sql` with `sql_queries`), `firestore` and `vertex` (with `remote`).
`stored_event` is the form of events in databases, `adk_database` reads databases of google-adk.
"""
