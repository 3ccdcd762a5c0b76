"""The command `headway`. Only this package prints or ends the process.

Exit codes: 0 done, 1 a check failed (or a simulation could not go on), 2 bad input, 130
interrupted. Everything heavy is imported inside the commands, so that `headway --help` is quick.
"""

from sim.cli.app import main

__all__ = ["main"]
