"""A figure as the bytes of a PNG."""

import io

from matplotlib.figure import Figure


def figure_bytes(figure: Figure) -> bytes:
    """Draw a figure; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
