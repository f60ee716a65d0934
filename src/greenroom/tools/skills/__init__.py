"""Skills: instructions, files and scripts that a model takes up when it needs them."""
