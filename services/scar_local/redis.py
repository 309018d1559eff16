"""Redis for machines without a ``redis-server``: fakeredis over TCP. Liveness is soft state, so that nothing has to survive.

python -m scar_local.redis HOST PORT
"""

from __future__ import annotations

import sys


def main(host: str, port: str) -> None:
    """Serve until the process is killed."""
    from fakeredis import TcpFakeServer

    TcpFakeServer((host, int(port)), server_type="redis").serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
