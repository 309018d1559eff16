"""``python -m scar_detector``: the failure detector."""

from scar.placement import Role
from scar_detector.service import DetectorSettings, build
from scar_runtime.process.app import main

raise SystemExit(main(DetectorSettings, Role.DETECTOR, build))
