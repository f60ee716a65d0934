"""Runs behind other protocols. A gate is a leaf over the run engine: it translates requests and
events, and stores nothing itself. Each module has a table `ENDPOINTS`; the setting `gates` names
those that a server offers."""
