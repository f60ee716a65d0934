"""Runs of many users: admitted, queued by session, executed as asyncio tasks, and resumed after a crash.

A run passes `in_process` (the engine), `admission` (with `runner.accept`: the run that a request starts or continues),
`queues` (which run may start now), `task` (an attempt: what the run still has to do), `runner.runner` and
`runner.commit`, in this order.
`start_scheduler`: starts a burst of runs a few at a time. `turns`: how many are executed at a time (`fair_queue`).
`engine`: the interface of the engine. `limits`: how many runs may be active. `run_config`, `runner_cache`: what an
attempt runs with. `ownership`, `takeover`: which sessions are this process's, and the moments to resume their runs.
`resumption`: resumes the runs that an earlier process left. `suspects`: those that may have ended it.
`wake_ups`: finds the waiting and delayed runs whose time has come. `open_calls`: continues waiting runs with signals,
at their times, and with the answers of people. `signals`: signals that come early.
`delayed_runs`: stores delayed runs, and starts them at their times.
`inbox`: requests to people. `answers`: the answers of a message to them, which `voting` counts by their policies.
`readers`: readers of the events of runs and sessions. `watch`: readers of run records.
`inactive_runs`: ends runs that have no task.
`webhooks`, `push_notifications`: messages about the states of runs, the latter for clients of gates.
`schedules`: starts runs at their times. `declared_schedules`: stores those that apps declare.
`memory_writer`: tasks after the end of a run.
`retries`: continues failed and cancelled runs. `deletion`: deletes sessions and users from all stores.
`store`: the interface of run stores, which `memory_store`, `sqlite_store` and `postgres_store` implement, the last two
by `sql_store`.
"""
