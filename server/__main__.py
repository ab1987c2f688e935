"""`python -m suture.server` and the `suture` script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        from suture.server import cli  # takes a while: an interrupt may come during it

        status = cli.main()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
