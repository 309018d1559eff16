"""What is written in C is compiled when a wheel or an editable installation is made."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelBuildHook(BuildHookInterface):
    """Without a compiler the wheel is for any machine, and numpy does the work."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        script = runpy.run_path(str(Path(self.root, "scripts", "compile_kernels.py")))
        if not script["compile_all"]():
            self.app.display_warning("no C compiler that works: numpy does everything")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # of any Python, as ctypes loads it
        build_data["pure_python"] = False
        build_data["artifacts"] += script["LIBRARIES"].values()
