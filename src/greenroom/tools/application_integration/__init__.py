"""Tools made of Google's Application Integration and Integration Connectors.

`connector_api` reads what a connection or an integration offers, `toolset` makes tools of that, and
`tool` is one of them.
"""
