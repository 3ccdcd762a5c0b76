"""Where a trace came from, and what was done to it on the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Provenance of a trace.

    Attributes:
        name: the path as given to `load`, or the name of a generator or sample.
        format: name of the format, or "generated", "in memory".
        sha256: of the file's bytes; None if there was no file.
        num_rows_read: rows in the file, those dropped included.
        start: the first kept arrival as it was before shifting, as text; None if not shifted.
        dropped: how many rows were left out, by reason.
        warnings: what a user should know, one sentence each.
        transforms: what was applied after loading, in order.
        time_unit: of the file's times; None for clock times, or where there was no file.
        block_size: tokens that a hash id of the file stands for; None if it has none.
        reading: how the file was read, and what of it was guessed, in one sentence.
    """

    name: str = "in memory"
    format: str = "in memory"
    sha256: str | None = None
    num_rows_read: int = 0
    start: str | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    time_unit: str | None = None
    block_size: int | None = None
    reading: str | None = None

    def transformed(self, what: str) -> TraceSource:
        """This source with one more transform noted."""
        return replace(self, transforms=(*self.transforms, what))

    def to_dict(self) -> dict[str, object]:
        """All fields as JSON-ready values."""
        return asdict(self)
