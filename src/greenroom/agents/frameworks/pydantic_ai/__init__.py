"""Agents of Pydantic AI, hosted.

`recorder` is the capability that watches a run of the agent and stores its progress; `messages` converts between the
framework's messages and contents; `chat_model` offers this package's models to the framework.
"""
