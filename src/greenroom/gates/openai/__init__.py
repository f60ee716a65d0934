"""OpenAI's interfaces, for any client of theirs: `/v1/models`, `/v1/chat/completions` and `/v1/responses`.

`model` names the app. Parameters of sampling have no effect: agents choose their models. Functions
of the client are tools that it executes; it also answers the framework's requests to a person, such
as `adk_request_confirmation`.

`endpoints` has the routes, `chat` and `responses` the two interfaces. Internal: `messages`, which converts messages.
Source: OpenAI's reference.
"""
