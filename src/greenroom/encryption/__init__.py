"""Encryption at rest: data keys that a key-encryption key wraps, and the codec by which stores encrypt.

`key_provider` is the contract of providers of key-encryption keys; `local_keys` and `google_kms` implement it, and
`from_uri` chooses one. `key_ring` has a store's data keys, `codec` encrypts and decrypts columns with them, `streams`
large contents piece by piece. `columns` lists what is encrypted in databases, and `rotation` encrypts it again.
"""
