"""Request handlers, one module per resource; the table `greenroom.server.endpoints` names them.

`run`, `live`, `sessions`, `artifacts` and `credentials` are about a user's conversations, `apps`, `builder`, `debug`
and `evaluation` about apps, and `server` and `web_page` about the server and its pages.
"""
