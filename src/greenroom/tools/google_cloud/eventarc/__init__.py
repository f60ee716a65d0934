"""Eventarc's tools: `config` has their settings, `bindings` says which attributes of an event the app sets and which
the model, `events` makes events, and `toolset` publishes them.
"""
