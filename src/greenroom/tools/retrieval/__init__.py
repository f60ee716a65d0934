"""Retrieval tools: over local files, or a corpus in Vertex AI.

`tool` is their base; `files_retrieval` indexes the passages that `file_passages` cuts, and
`vertex_ai_rag_retrieval` searches a corpus.
"""
