"""``python -m scar_ps``: run one shard."""

from scar.placement import Role
from scar_ps.config import PsSettings
from scar_ps.service import build
from scar_runtime.process.app import main

raise SystemExit(main(PsSettings, Role.SHARD, build))
