"""Bigtable's tools: `config` has their settings, `toolset` the tools, `queries` runs SQL, and `values` and `protobuf`
read the rows.
"""
