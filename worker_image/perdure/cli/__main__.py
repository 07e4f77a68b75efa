"""`python -m perdure.cli` is `perdure`, where the command is not on the path."""

from perdure.cli.main import main

main()
