"""The errors of this room."""


class CalibrationError(ValueError):
    """A model, GPU, cache or profile that can't be used; its message is a sentence for the user."""


class InterruptedCalibrationError(CalibrationError):
    """The user stopped it before there was enough for a profile; what was measured is kept."""


class UnmeasuredError(CalibrationError):
    """Kernel tables lack an operation that the model needs; the message names it."""
