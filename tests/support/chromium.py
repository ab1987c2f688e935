"""The Chromium of this machine, and how it is started for tests."""

from __future__ import annotations

import shutil

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
# Root, as in containers, has no sandbox; and no name but the loopback's is looked up.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
