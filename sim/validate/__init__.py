"""Predictions held against measurements of real engines: the same simulator, nothing tuned.

A measurement says what was served and how fast; how it was served (the load generator, the
engine's settings, its host time) is an input, declared once for all rows of a source.
"""

from sim.validate.bench_runs import BenchRun, find_bench_runs, predict_bench_run
from sim.validate.comparison import Comparison
from sim.validate.harness import HARNESSES, Harness
from sim.validate.silicon_rows import SiliconRow, read_silicon_rows
from sim.validate.silicon_study import SILICON_STUDIES, SiliconStudy, predict_row

__all__ = [
    "HARNESSES",
    "SILICON_STUDIES",
    "BenchRun",
    "Comparison",
    "Harness",
    "SiliconRow",
    "SiliconStudy",
    "find_bench_runs",
    "predict_bench_run",
    "predict_row",
    "read_silicon_rows",
]
