"""Where named, versioned files of sessions and users are kept: one contract, and a file per store."""
