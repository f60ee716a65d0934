"""Tools made of Google's API discovery documents: one for each method of an API."""
