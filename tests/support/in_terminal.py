"""Runs a command whose terminal is its standard input: `python in_terminal.py COMMAND ...`."""

from __future__ import annotations

import fcntl
import os
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execv(sys.argv[1], sys.argv[1:])
