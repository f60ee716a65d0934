"""Runs as the server owns them: started, attached to, cancelled, resumed."""
