"""``python -m scar_recovery``."""

from scar.placement import Role
from scar_recovery.config import RecoverySettings
from scar_recovery.service import build
from scar_runtime.process.app import main

if __name__ == "__main__":
    raise SystemExit(main(RecoverySettings, Role.RECOVERY, build))
