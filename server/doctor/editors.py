"""Editors that are installed here, and whether one of their clients for a server like ours is.

What is known of a client is where its files are put; whether it is switched on, and for which URL,
only the editor knows. `docs/clients.md` says how each is pointed at Suture.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suture.server.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Editor:
    """An editor by its `commands`; `clients` are found as `places`, below the home directory.

    `install` is a line for a shell, in a checkout of Suture where it is its own client that is
    installed; without one, the editor's clients are none that are known.
    """

    name: str
    commands: tuple[str, ...]
    places: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    install: str = ""


_EXTENSIONS = (
    "suture.suture",
    "ggml-org.llama-vscode",
    "continue.continue",
    "tabbyml.vscode-tabby",
)
_EXTENSION = "editor-clients/vscode/suture.vsix"
_PLUGINS = ("llama.vim", "minuet-ai.nvim", "vim-tabby")
_NEOVIM_PLUGIN = "~/.local/share/nvim/site/pack/suture/start"
_LLAMA_VIM = "git clone https://github.com/ggml-org/llama.vim"

EDITORS = (
    Editor(
        "VS Code",
        ("code",),
        (".vscode/extensions/*", ".vscode-server/extensions/*"),
        _EXTENSIONS,
        f"make vscode && code --install-extension {_EXTENSION}",
    ),
    Editor(
        "VSCodium",
        ("codium",),
        (".vscode-oss/extensions/*",),
        _EXTENSIONS,
        f"make vscode && codium --install-extension {_EXTENSION}",
    ),
    Editor(
        "Cursor",
        ("cursor",),
        (".cursor/extensions/*",),
        _EXTENSIONS,
        f"make vscode && cursor --install-extension {_EXTENSION}",
    ),
    Editor(
        "Neovim",
        ("nvim",),
        (
            ".local/share/nvim/lazy/*",
            ".local/share/nvim/plugged/*",
            ".local/share/nvim/site/pack/*/*/*",
            ".config/nvim/pack/*/*/*",
            ".vim/pack/*/*/*",
        ),
        ("suture", *_PLUGINS),
        f'mkdir -p {_NEOVIM_PLUGIN} && ln -s "$PWD/editor-clients/nvim" {_NEOVIM_PLUGIN}/suture',
    ),
    Editor(
        "Vim",
        ("vim",),
        (".vim/plugged/*", ".vim/pack/*/*/*", ".vim/bundle/*"),
        _PLUGINS,
        f"{_LLAMA_VIM} ~/.vim/pack/suture/start/llama.vim",
    ),
    Editor("Helix", ("hx", "helix")),
    Editor("Zed", ("zed", "zeditor")),
    Editor("Emacs", ("emacs",)),
)


def editors(home: Path) -> Iterator[Finding]:
    """Each editor that is there, with what was found of its clients below `home`."""
    for editor in EDITORS:
        if any(shutil.which(command) for command in editor.commands):
            yield _describe(editor, home)


def _describe(editor: Editor, home: Path) -> Finding:
    if not editor.install:
        return Finding("ok", "editor", f"{editor.name} is here; docs/clients.md says what it takes")
    found = sorted(_clients(editor, home))
    if found:
        return Finding("ok", "editor", f"{editor.name}: {', '.join(found)}")
    text = f"{editor.name} is here, and none of its clients that are known"
    return Finding("note", "editor", text, editor.install)


def _clients(editor: Editor, home: Path) -> set[str]:
    """The clients whose folder is there; an extension's has its version behind its name."""
    folders = {path.name.lower() for place in editor.places for path in home.glob(place)}
    return {
        client
        for client in editor.clients
        if any(name == client or name.startswith(f"{client}-") for name in folders)
    }
