"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background makes them deaf to SIGINT, and with them every process they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
