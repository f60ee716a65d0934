"""Where the spans of past runs are kept for whoever debugs them."""
