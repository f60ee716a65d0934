"""Agents of the OpenAI Agents SDK, hosted.

`agent` is the agent, `recorder` stores the progress of a run and gives a run that was cut off what it has recorded,
`progress` is what the states in the log hold, `messages` converts between the SDK's items and contents, and `model`
offers this package's models to the SDK.
"""
