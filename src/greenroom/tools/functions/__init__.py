"""Python functions as tools.

`function_tool` is the tool, `signature` declares it to the model. `thread_pool` runs functions that
block, and `watchdog` reports asynchronous ones that block the event loop.
"""
