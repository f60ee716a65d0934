"""One suite per contract, for any implementation."""
