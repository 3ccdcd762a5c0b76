"""What is timed: a table (or a check) and one or two counts."""

from typing import NamedTuple

CURVES = ("dense", "logits")
CHUNKS = "prefill_attention"
GRIDS = (CHUNKS, "decode_attention")
TABLES = (*CURVES, *GRIDS)

SKEW, MIXED, SKEWED_MIX = "skewed_decode_attention", "mixed_attention", "skewed_mixed_attention"
WHOLE, OPERATION = "whole_step", "op:"


class Point(NamedTuple):
    """One thing to time.

    `table` is a table of the profile with its counts (dense: tokens; logits: rows;
    prefill_attention: new tokens, computed tokens; decode_attention: requests, mean context), or
    - `skewed_decode_attention`: as decode_attention, a few contexts much longer than the others
      (there all are equal);
    - `mixed_attention`: attention of one chunk of `first` tokens beside `second` decodes of equal
      contexts; `skewed_mixed_attention`: of unlike ones;
    - `whole_step`: held-out step number `first`;
    - `op:NAME`: one operation of the model, in all layers, over `first` tokens.
    """

    table: str
    first: int
    second: int = 0

    def __str__(self) -> str:
        counts = f"{self.first}" if self.table in CURVES else f"{self.first} x {self.second}"
        return f"{self.table} {counts}"
