"""The set-up for Emacs in a real Emacs, with a bridge process and a scripted server.

Eglot is looked for where Emacs finds it. lsp-mode runs where LSP_MODE_DIR names a checkout of
emacs-lsp/lsp-mode and Emacs has what it needs (dash, f, ht, lv, markdown-mode, spinner).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.http_server import serving
from support.writing_completer import WritingCompleter

EMACS = shutil.which("emacs")
LSP_MODE = os.environ.get("LSP_MODE_DIR", "")
SETUP = Path(__file__).parents[2] / "editor-clients" / "emacs" / "suture.el"
TEXT = "def area(width, height):\n    return width * height\n"
TYPED = "def area(wid"

# The last form prints what the buffer has become.
_EGLOT = """
(require 'eglot)
(setq eglot-sync-connect t eglot-connect-timeout 60)
(add-to-list 'eglot-server-programs '(text-mode . suture-eglot))
(find-file "a.txt")
(goto-char (point-max))
(pcase-let ((`(,mode ,project ,class ,contact ,id) (eglot--guess-contact)))
  (eglot mode project class contact id))
(completion-at-point)
(princ (buffer-string))
"""
_LSP_MODE = """
(add-to-list 'load-path (getenv "LSP_MODE_DIR"))
(require 'lsp-mode)
(require 'lsp-inline-completion)
(setq lsp-session-file (expand-file-name "session") lsp-enable-file-watchers nil
      lsp-auto-guess-root t lsp-guess-root-without-session t)
(find-file "a.txt")
(goto-char (point-max))
(lsp)
(with-timeout (30 (error "It does not start"))
  (while (not (seq-some (lambda (one) (eq 'initialized (lsp--workspace-status one)))
                        (lsp-workspaces)))
    (accept-process-output nil 0.1)))
(lsp-inline-completion-display)
(lsp-inline-completion-accept)
(princ (buffer-string))
"""


def has_library(name: str) -> bool:
    looked = f'(kill-emacs (if (locate-library "{name}") 0 1))'
    command = [str(EMACS), "--batch", "--eval", looked]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def completed(folder: Path, script: str) -> str:
    """The text that Emacs has after a script, in a buffer with TYPED in it."""
    (folder / "a.txt").write_text(TYPED)
    (folder / "script.el").write_text(script)
    environ = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with serving(WritingCompleter(text=TEXT)) as url:
        command = [sys.executable, "-m", "suture.server", "lsp", "--server", url]
        lisp = " ".join(map(json.dumps, command))
        started = [str(EMACS), "--batch", "-l", str(SETUP)]
        started += ["--eval", f"(setq suture-command '({lisp}))", "-l", "script.el"]
        ended = subprocess.run(
            started, cwd=folder, env=environ, capture_output=True, text=True, timeout=120
        )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


pytestmark = [pytest.mark.e2e, pytest.mark.skipif(EMACS is None, reason="there is no emacs")]


def test_eglot_completes_with_our_text(tmp_path: Path) -> None:
    if not has_library("eglot"):
        pytest.skip("this Emacs has no Eglot")
    assert completed(tmp_path, _EGLOT) == TEXT


@pytest.mark.skipif(not LSP_MODE, reason="LSP_MODE_DIR is not set")
def test_lsp_mode_shows_and_accepts_our_text(tmp_path: Path) -> None:
    assert completed(tmp_path, _LSP_MODE) == TEXT
