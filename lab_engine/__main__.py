"""`python -m lab_engine` is the command line `nanoqwen`."""

from lab_engine.cli import main

main()
