"""Records that travel and are stored: plain msgspec structs, JSON in camelCase.

Stored and sent: `event`, `content`, `session`, `state`, `run`, `usage`, `listings`, `recording`.
For models and tools: `model_exchange`, `generation`, `model_options`, `answer_metadata`, `tool_declaration`, `auth`.
Rules about them: `human_requests`, `redaction`, `identifiers`, `service_uri`. `wire` encodes and decodes all of them.
Below them: `base` has the base classes, `declarative` that of classes which users write, `copy_on_write` the lists of
events, and `genai_types` takes Google's own types.
"""
