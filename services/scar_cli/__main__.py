"""``scar``, and ``python -m scar_cli``. It imports the rest where a missing extra and Ctrl-C are answered."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # exit code, as shells have it


def main() -> None:
    """The command.

    A missing extra is one line, and Ctrl-C while modules are loaded is none; neither is a traceback.
    """
    try:
        from scar_cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        from scar_cli.extras import missing_extra_text

        if not (said := missing_extra_text(error)):
            raise
        sys.stderr.write(f"error: {said}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
