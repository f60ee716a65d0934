"""The tools that greenroom ships, one file each."""
