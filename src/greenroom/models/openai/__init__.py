"""OpenAI's Chat Completions, Responses and Realtime, and compatible servers.

`chat`, `responses` and `realtime` are the three APIs, with `messages`, `items` and
`realtime_session` for their requests. `call_deltas` joins the pieces of streamed tool calls, and
`rules` says what the services accept.
"""
