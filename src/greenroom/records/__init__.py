"""Records that travel and are stored: plain msgspec structs, JSON in camelCase."""
