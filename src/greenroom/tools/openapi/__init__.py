"""Tools from OpenAPI documents.

`document` reads a document, `operation` its operations; `toolset` makes a `rest_api_tool` of each,
and `request` turns a call's arguments into an HTTP request.
"""
