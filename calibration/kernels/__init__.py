"""Profiles from tables of measured GPU kernels: every operation of a layer, timed on its own.

The tables are those of the Python distribution `aiconfigurator-core` (Apache-2.0): one Parquet
file for each kind of operation, GPU and engine version. `build_profile` adds the operations up to
the step times of a model at a tensor-parallel size. Nothing is fitted to end-to-end times.
"""

from calibration.kernels.build import build_profile
from calibration.kernels.system import KernelTables, find_kernel_data, load_kernel_tables

__all__ = ["KernelTables", "build_profile", "find_kernel_data", "load_kernel_tables"]
