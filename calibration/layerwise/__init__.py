"""Profiles from layer-wise timings: each operation of one decoder layer, in vLLM itself.

The format is that of LLMServingSim's profiler (MIT): four CSV files, microseconds. Beside kernel
tables it has what those lack: chunks after a context, and batches of chunks and decodes together.
"""

from calibration.layerwise.build import build_layerwise_profile
from calibration.layerwise.files import LayerwiseFiles, find_layerwise_files

__all__ = ["LayerwiseFiles", "build_layerwise_profile", "find_layerwise_files"]
