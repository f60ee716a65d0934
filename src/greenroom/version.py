"""The version, of the package, also reported to servers and clients."""

__version__ = "0.1.0"
