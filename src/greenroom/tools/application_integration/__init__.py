"""Tools for Google's Application Integration and Integration Connectors.

`connector_api` reads the operations of a connection or an integration, `toolset` makes tools of them, and `tool` is
such a tool.
"""
