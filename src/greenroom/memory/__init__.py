"""Memory of users across sessions.

`service` is the contract, `from_uri` chooses a store: `sqlite` and `postgres` (on `sql`), `firestore`, `vertex`,
`in_memory`. `entries` makes entries of events, `words` finds the search terms of texts, and `signatures` finds the
nearest vectors.
"""
