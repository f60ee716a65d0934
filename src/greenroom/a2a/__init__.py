"""Messages of the A2A protocol as contents and events, for the gate and for remote agents."""
