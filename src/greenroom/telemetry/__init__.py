"""What a run tells of itself: spans, and the numbers and log lines made from them."""
