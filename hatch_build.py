"""Builds the compiled core beside the Python packages, where there is a C compiler.

Without one the wheel holds Python only, which gives the same results in more time. The environment
variable HEADWAY_CORE says otherwise: `python` never compiles, `compiled` fails if it can't.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = Path("sim") / "_core"


class CoreBuildHook(BuildHookInterface[Any]):
    """Compiles `sim/_core/*.c` into the wheel, or in place for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say in the wheel's tag that it fits this Python and machine only."""
        wanted = os.environ.get("HEADWAY_CORE", "auto")
        if self.target_name != "wheel" or wanted == "python":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="headway-core-")
        try:
            library = _compile(Path(self.root), Path(self._scratch.name))
        except Exception as error:
            if wanted == "compiled":
                raise
            self.app.display_warning(
                f"The compiled core was not built ({type(error).__name__}: {error}). Headway runs "
                "all the same, in pure Python and more slowly; a C compiler is all that it takes."
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":
            (Path(self.root) / _PACKAGE / library.name).write_bytes(library.read_bytes())
        else:
            build_data["force_include"][str(library)] = str(_PACKAGE / library.name)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Throw the scratch folder away."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()


def _compile(root: Path, scratch: Path) -> Path:
    """The extension module, compiled with what this Python was compiled with."""
    from setuptools import Distribution, Extension  # noqa: PLC0415 -- only where it is built
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    class BuildCore(build_ext):
        def build_extensions(self) -> None:
            # No operation may be fused or reordered: results are those of Python, bit for bit.
            flags = ["-O2", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden"]
            if self.compiler.compiler_type == "msvc":
                flags = ["/O2", "/std:c11", "/fp:precise"]
            for extension in self.extensions:
                extension.extra_compile_args = flags
            super().build_extensions()

    sources = sorted(str(path) for path in (root / _PACKAGE).glob("*.c"))
    extension = Extension("sim._core._native", sources, depends=[str(root / _PACKAGE / "core.h")])
    command = BuildCore(Distribution({"name": "headway-core", "ext_modules": [extension]}))
    command.build_lib = str(scratch / "lib")
    command.build_temp = str(scratch / "temp")
    command.ensure_finalized()
    command.run()
    return Path(command.get_outputs()[0])
