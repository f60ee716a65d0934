"""A session's workspace: commands, code and files in a sandbox of its own, whose files are the session's artifacts."""
