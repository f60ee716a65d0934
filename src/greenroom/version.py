"""The version, for the package and for what it tells others."""

__version__ = "0.1.0"
