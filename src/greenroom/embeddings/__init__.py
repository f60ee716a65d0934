"""Embeddings of texts.

`embeddings` is the contract, with the lookup by name. Each provider has a module, which is imported
when it is used.
"""
