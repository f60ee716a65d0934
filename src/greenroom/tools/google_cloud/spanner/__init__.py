"""Spanner's tools: `config` has their settings, `toolset` what they read, `admin` those for instances and databases,
`sessions` the requests, `search` the SQL of similarity search, and `filters` the filters that a model may give it.
"""
