"""What travels and what is stored: plain msgspec structs, JSON in camelCase."""
