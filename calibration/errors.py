"""The errors of this room."""


class CalibrationError(ValueError):
    """A model, GPU, cache or profile that can't be used; its message is a sentence for the user."""


class UnmeasuredError(CalibrationError):
    """Kernel tables lack an operation that the model needs; the message names it."""
