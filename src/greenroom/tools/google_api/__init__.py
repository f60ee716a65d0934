"""Tools for Google's APIs, made from discovery documents: one for each method."""
