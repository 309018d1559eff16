"""``python -m scar_checkpoint``."""

from scar.placement import Role
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.service import build
from scar_runtime.process.app import main

if __name__ == "__main__":
    raise SystemExit(main(CheckpointSettings, Role.CHECKPOINT, build))
