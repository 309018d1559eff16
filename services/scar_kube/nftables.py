"""Runs in a pod, as root with NET_ADMIN: no packet comes in or goes out until it ends.

    python -m scar_kube.nftables SECONDS

A table of nftables with two chains that drop everything, in the network namespace of the pod. The socket that
made the table owns it (Linux 5.12): the kernel takes it away when this process ends, however it ends. Three
messages are all that it needs; no library for nftables knows of such owners.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator

NETLINK_NETFILTER = 12
NFNL_SUBSYS_NFTABLES = 10
NFNL_MSG_BATCH_BEGIN = 16
NFNL_MSG_BATCH_END = 17
NFT_MSG_NEWTABLE = 0
NFT_MSG_NEWCHAIN = 3
NLM_F_REQUEST = 1
NLM_F_ACK = 4
NLM_F_CREATE = 0x400
NLM_F_EXCL = 0x200
NLMSG_ERROR = 2  # an acknowledgement, too: with error 0
NLA_F_NESTED = 0x8000
NFPROTO_UNSPEC = 0
NFPROTO_INET = 1  # IPv4 and IPv6
NFTA_TABLE_NAME = 1
NFTA_TABLE_FLAGS = 2
NFT_TABLE_F_OWNER = 2
NFTA_CHAIN_TABLE = 1
NFTA_CHAIN_NAME = 3
NFTA_CHAIN_HOOK = 4
NFTA_CHAIN_POLICY = 5
NFTA_CHAIN_TYPE = 7
NFTA_HOOK_HOOKNUM = 1
NFTA_HOOK_PRIORITY = 2
NF_DROP = 0
HOOKS = {"input": 1, "output": 3}  # NF_INET_LOCAL_IN, NF_INET_LOCAL_OUT
TABLE = b"scar-cut\0"
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
ANSWER_BYTES = 1 << 16


def drop_packets() -> socket.socket:
    """Until the socket that it returns is closed. Raises :class:`OSError`, as the kernel says."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    try:
        netlink.bind((0, 0))
        netlink.send(drop_messages())
        acknowledged = 0
        while acknowledged < 1 + len(HOOKS):
            acknowledged += sum(1 for _ in _read_answers(netlink.recv(ANSWER_BYTES)))
    except OSError:
        netlink.close()
        raise
    return netlink


def drop_messages() -> bytes:
    """One transaction: the table with its owner, and a chain at each of :data:`HOOKS`."""
    owned = _attribute(NFTA_TABLE_FLAGS, struct.pack(">I", NFT_TABLE_F_OWNER))
    table = _attribute(NFTA_TABLE_NAME, TABLE) + owned
    made = [_message(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, table)]
    made += [_message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, _chain(name, hook)) for name, hook in HOOKS.items()]
    return _batch_mark(NFNL_MSG_BATCH_BEGIN) + b"".join(made) + _batch_mark(NFNL_MSG_BATCH_END)


def _chain(name: str, hook: int) -> bytes:
    where = _attribute(NFTA_HOOK_HOOKNUM, struct.pack(">I", hook))
    where += _attribute(NFTA_HOOK_PRIORITY, struct.pack(">i", 0))
    return (
        _attribute(NFTA_CHAIN_TABLE, TABLE)
        + _attribute(NFTA_CHAIN_NAME, name.encode() + b"\0")
        + _attribute(NFTA_CHAIN_HOOK | NLA_F_NESTED, where)
        + _attribute(NFTA_CHAIN_POLICY, struct.pack(">I", NF_DROP))
        + _attribute(NFTA_CHAIN_TYPE, b"filter\0")
    )


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _message(kind: int, flags: int, attributes: bytes) -> bytes:
    body = struct.pack("=BBH", NFPROTO_INET, 0, 0) + attributes
    flags |= NLM_F_REQUEST | NLM_F_ACK
    return HEADER.pack(HEADER.size + len(body), NFNL_SUBSYS_NFTABLES << 8 | kind, flags, 0, 0) + body


def _batch_mark(kind: int) -> bytes:
    body = struct.pack("=BBH", NFPROTO_UNSPEC, 0, socket.htons(NFNL_SUBSYS_NFTABLES))
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST, 0, 0) + body


def _read_answers(data: bytes) -> Iterator[int]:
    """Type of each message; raises the error that one of them tells."""
    while data:
        length, kind, *_ = HEADER.unpack_from(data)
        if kind == NLMSG_ERROR:
            (code,) = struct.unpack_from("=i", data, HEADER.size)
            if code:
                raise OSError(-code, os.strerror(-code))
        yield kind
        data = data[(length + 3) & ~3 :]


def main() -> None:
    try:
        dropping = drop_packets()
    except OSError as error:
        sys.exit(f"no packets are dropped: {error}; it needs nftables of Linux 5.12, and NET_ADMIN")
    with dropping:
        time.sleep(float(sys.argv[1]))


if __name__ == "__main__":
    main()
