"""Executors of code that a model writes.

`executor` is the contract, and `context` reads and changes what executions keep in a session's state. `sandboxed` runs
code in sandboxes of this machine (`container`: in containers) or of a service, `unsafe_local` as a process of this
machine. Others run it elsewhere: in sandboxes of Agent Engine (`agent_engine`), in Vertex AI's code interpreter
(`vertex`), in jobs of Kubernetes (`gke`) and sandboxes of Cloud Run (`cloud_run`), both by a program that `job` makes
of `job_main`. `remote` has what they share.
"""
