"""Python types as models see them: JSON Schemas, and values to and from JSON."""
