"""A group of faults as people write it on the command line.

kill:ps-0+ps-1                       two shards at once
corrupt:store+kill:ps-0~0.5          a shard dies half a second after an object was damaged
kill:ps-0+kill:recovery@recovery     and the coordinator while its blocks are on their way back
outage:store/90                      for 90 seconds
"""

from __future__ import annotations

import re

from scar.errors import ConfigError
from scar_chaos.core.faults import MOMENTS, Fault
from scar_chaos.core.schedule import CLOCKS, FaultKinds

GRAMMAR = "[KIND:]TARGET[@MOMENT][/SECONDS][~LAG]"
_KIND = r"(?:(?P<kind>[a-z]+):)?"
_TARGET = r"(?P<target>[a-z]+(?:-\d+)?)"
_MOMENT = r"(?:@(?P<moment>[a-z]+))?"
_SECONDS = r"(?:/(?P<seconds>\d+(?:\.\d+)?))?"
_LAG = r"(?:~(?P<lag>\d+(?:\.\d+)?))?"
_FAULT = re.compile(_KIND + _TARGET + _MOMENT + _SECONDS + _LAG)


def parse_faults(text: str, kinds: FaultKinds, clock: int = CLOCKS[1]) -> list[Fault]:
    """Parse one group; a fault without a kind has the kind of the one before.

    Raises :class:`ConfigError`, which names the choices.
    """
    faults: list[Fault] = []
    for part in text.split("+"):
        found = _FAULT.fullmatch(part)
        if found is None or not (found["kind"] or faults):
            raise ConfigError(
                f"{part!r} is no fault", f"Write KIND:TARGET, further ones of a group as +{GRAMMAR}"
            )
        fault = Fault(
            clock=0 if faults else clock,
            kind=found["kind"] or faults[-1].kind,
            target=found["target"],
            lag=float(found["lag"] or 0.0),
            moment=found["moment"] or "",
            lasts=float(found["seconds"] or 0.0),
        )
        _check_fault(part, fault, kinds)
        faults.append(fault)
    return faults


def _check_fault(part: str, fault: Fault, kinds: FaultKinds) -> None:
    known = kinds.get(fault.target.split("-")[0])
    if known is None:
        raise ConfigError(
            f"{part!r} names no target: {fault.target!r}",
            f"Write KIND:TARGET[+...], of {_target_names(kinds)}",
        )
    if fault.kind not in known:
        raise ConfigError(
            f"{fault.kind!r} cannot be done to {fault.target} here",
            f"Choose one of {', '.join(sorted(set(known)))}",
        )
    if fault.moment not in MOMENTS:
        raise ConfigError(
            f"{part!r} names no moment: {fault.moment!r}",
            f"Choose one of {', '.join(filter(None, MOMENTS))}",
        )


def _target_names(kinds: FaultKinds) -> str:
    return ", ".join(f"{name}-0" if name in ("ps", "worker") else name for name in kinds)
