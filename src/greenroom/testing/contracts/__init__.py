"""Contract suites: one per contract, for any implementation.

Star-import a suite into a test file that has the fixtures it names. `capabilities` lets a store declare what it doesn't
offer, and `paging` reads all pages of a listing.
"""
