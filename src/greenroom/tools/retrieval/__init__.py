"""Tools that look things up in a collection: local files, or a corpus that Vertex AI keeps."""
