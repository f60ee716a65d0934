"""A message in, events out: each stored before it is seen."""
