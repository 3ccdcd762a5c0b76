"""`python -m sim.cli`, the same as `headway`."""

from sim.cli.app import main

main()
