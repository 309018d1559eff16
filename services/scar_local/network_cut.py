"""A partition of single processes of this machine: what others send them does not arrive, nor what they send.

No connection is closed, as when a cable is pulled: TCP sends again afterwards. Each process that supervises
others filters the sockets of its own children, and its own. Whatever becomes of it, no filter stays on the
socket of a stranger, since its children end with it.

Connections are made meanwhile, too. Who listens takes no data over new ones until it is known that somebody
else than the cut process has made them: one retransmission, 0.2 s, for the first bytes of bystanders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scar_local.socket_filters import SocketFilter, set_filter
from scar_local.tcp_sockets import Address, OpenSocket, TcpSocket, open_sockets, read_sockets

Ends = tuple[Address, Address]  # from, to


class NetworkCut:
    """The filters that are on sockets now. One thread uses it."""

    def __init__(self) -> None:
        self._filters: dict[int, SocketFilter] = {}  # by inode
        self._known: set[int] = set()  # that have none, unless the above says so
        self._cleared: set[int] = set()  # new, and seen once as a bystander's
        self._links: dict[int, set[Ends]] = {}  # that a cut process has had, by its pid
        self._begun = False

    def sweep(self, cut: Collection[int], own: Collection[int]) -> None:
        """Filter what has been opened since, and set free what belongs to a cut that is over.

        ``cut``: pids of processes that are cut off, whoever's children they are. ``own``: pids of those whose
        sockets we may touch. Raises :class:`OSError` when the system does not allow it.
        """
        self._links = {pid: self._links.get(pid, set()) for pid in cut}
        theirs = {pid: set(open_sockets([pid])) for pid in cut}
        held = open_sockets(own)
        table = read_sockets()
        for pid in cut:
            theirs[pid] |= set(open_sockets([pid]))  # what they have opened while we looked
            ends = [table[inode] for inode in theirs[pid] if inode in table]
            self._links[pid] |= {(end.local, end.remote) for end in ends if not end.listens}
        victims = set().union(*theirs.values())
        makers = {(one.local, one.remote) for inode, one in table.items() if inode not in victims}
        cut_links = set().union(*self._links.values())
        listeners = {one.local for one in table.values() if one.listens}
        for inode, place in held.items():
            if inode in table:
                wanted = _wanted_filter(table[inode], inode in victims, cut_links)
                is_new = self._begun and table[inode].local in listeners and inode not in self._known
                if wanted is None and is_new and not self._is_bystanders(inode, table[inode], makers):
                    continue
                self._set(inode, place, wanted, is_new)
        self._begun = True
        self._forget(held)

    def _is_bystanders(self, inode: int, one: TcpSocket, makers: Collection[Ends]) -> bool:
        """Whether somebody else has made this connection, in two looks: its maker may just have ended."""
        if (one.remote, one.local) not in makers:
            return False
        if inode in self._cleared:
            return True
        self._cleared.add(inode)
        return False

    def _set(self, inode: int, place: OpenSocket, wanted: SocketFilter | None, is_new: bool) -> None:
        """``is_new``: it may have the filter of the socket that listened, of which we know nothing."""
        if (wanted != self._filters.get(inode) or is_new) and set_filter(*place, inode, wanted):
            if wanted is None:
                self._filters.pop(inode, None)
            else:
                self._filters[inode] = wanted
        self._known.add(inode)

    def release(self, own: Collection[int]) -> bool:
        """Take every filter away; False: do it again, since somebody has not yet accepted a connection that
        has one.
        """
        table = read_sockets()
        held = {inode: place for inode, place in open_sockets(own).items() if inode in table}
        listening = {inode for inode in held if table[inode].listens}
        is_first = any(inode in self._filters for inode in listening)
        for inode, place in held.items():
            set_filter(*place, inode, None)
        self._filters = {}
        self._known = self._cleared = set()
        self._links = {}
        self._begun = False
        return not is_first and not any(table[inode].queued for inode in listening)

    def _forget(self, held: Mapping[int, OpenSocket]) -> None:
        """What nobody has open any more."""
        self._filters = {inode: what for inode, what in self._filters.items() if inode in held}
        self._known &= held.keys()
        self._cleared &= held.keys()


def _wanted_filter(one: TcpSocket, is_victims: bool, cut_links: Collection[Ends]) -> SocketFilter | None:
    if is_victims or (one.remote, one.local) in cut_links:
        return SocketFilter.ALL
    return SocketFilter.DATA if one.listens else None
