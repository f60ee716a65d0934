"""A scripted model, and the contract suites of the stores."""
