"""What the adapter raises."""

from sim.errors import StudyError


class VllmAdapterError(StudyError):
    """vLLM, or the class that was asked for, is not there or cannot be used."""
