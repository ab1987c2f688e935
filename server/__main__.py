"""`python -m suture.server` and the `suture` script."""

from __future__ import annotations

import sys

from suture.server import cli


def main() -> None:
    """Run the command line and exit."""
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
