"""Executors of code that a model writes.

`executor` is the contract, and `context` reads and changes what executions keep in a session's state. `sandboxed` runs
code in sandboxes of this machine (`container`: in containers), `unsafe_local` as a process of it. Others run it
elsewhere: in sandboxes of Agent Engine (`agent_engine`), in Vertex AI's code interpreter (`vertex`), in jobs of
Kubernetes (`gke`) and sandboxes of Cloud Run (`cloud_run`), both by a program that `job` makes of `job_main`, or in any
environment (`environment`, by way of `guest_program`, which is copied there). `remote` has what they share.
"""
