"""Stores of named, versioned files of sessions and users.

`service` is the contract; `by_path` is the part that all our stores have in common, on paths. `files` keeps them in a
folder, `object_store` in S3, GCS or Azure, `in_memory` in the process; `from_uri` chooses one. `layout` says how
paths and descriptions of versions are written.
"""
