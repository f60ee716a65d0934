"""Messages of the A2A protocol as contents and events, for the gate and for remote agents.

`parts`: conversion of parts, in both directions. `metadata`: what ADK's events have beside their parts.
`part_metadata`: names in the metadata of parts. `well_known`: the path of agent cards.
"""
