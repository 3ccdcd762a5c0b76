"""The errors that `sim` raises for its user: each message is one clear sentence to print as it is.

The message names what is wrong (file, field, value) and what would be right; the command line
prints it without a traceback. The leaves have their own: `traces.TraceError`,
`calibration.CalibrationError`, `policies.PolicyError`.
"""


class StudyError(ValueError):
    """A study can't be run as written: an unknown key, a value out of range, a wrong pair."""


class ResultError(ValueError):
    """A run folder can't be written or read: it exists, is unwritable, or a file is broken."""


class SimulationError(RuntimeError):
    """A simulation that had begun can't go on: no event left and requests wait, and the like."""
