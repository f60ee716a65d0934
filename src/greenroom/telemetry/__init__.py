"""Spans of runs, and the metrics and logs derived from them.

`span`: the spans of one run. `agent_spans`: those of agents, model calls and tool calls. `span_record`: a finished
span as it is stored. `run_metrics`: counters and histograms of runs. `otlp` and
`otlp_metrics`: export to a collector.
Internal: `names`, the names of spans and of their attributes.
"""
