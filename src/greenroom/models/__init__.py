"""Models under one contract; a provider's SDK is imported with its first model.

`model` is the contract, and `by_name` finds the class for a name. Each provider's folder turns
requests into its SDK's form and replies back: `provider` is their common base, `requests/` makes
any history valid, `conversion` and `reply` do the rest. `attempts`, `retrying` and `fallback`
repeat failed calls; `model_errors` and `error_reply` say what failed.
"""
