"""`python -m greenroom` is the command line."""

from greenroom.cli.main import main

main()
