"""`python -m onepos`."""

from onepos.cli import main

main()
