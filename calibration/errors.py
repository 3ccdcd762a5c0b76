"""The one error of this room."""


class CalibrationError(ValueError):
    """A model, GPU, cache or profile that can't be used; its message is a sentence for the user."""
