"""Studies that are shipped with Headway."""

from importlib.resources import files


def sample_study_text() -> str:
    """The text of the sample study: what `headway run` runs when it is given none."""
    return (files(__name__) / "sample.yaml").read_text(encoding="utf-8")
