"""Delivery of stored and partial events to the readers of a session.

`stream`: the contract, and `Follower`, which reads a session from any sequence number without gap or repeat.
`in_process`: the implementation for readers in the same process.
"""
