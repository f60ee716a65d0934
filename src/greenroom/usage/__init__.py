"""Usage and cost of runs: prices, and the stores that budgets and reports read."""
