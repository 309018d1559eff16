"""``python -m scar_worker``: run one worker."""

from scar.placement import Role
from scar_runtime.process.app import main
from scar_worker.config import WorkerSettings
from scar_worker.service import build

raise SystemExit(main(WorkerSettings, Role.WORKER, build))
