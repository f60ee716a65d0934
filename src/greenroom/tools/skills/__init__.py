"""Skills: instructions, files and scripts that a model reads when it needs them."""
