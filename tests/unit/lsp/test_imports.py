"""Which files a text names, language by language."""

from __future__ import annotations

import pytest

from suture.lsp.context.counterparts import counterparts
from suture.lsp.context.imports import Mention, mentions

# Of each language: the grammar, a document's path, what it says, and files that it means thereby.
CASES = [
    ("python", "app/views/main.py", "import app.models", ["app/models.py"]),
    ("python", "app/views/main.py", "import app.models as m, tools", ["app/models.py", "tools.py"]),
    ("python", "app/main.py", "from app.models import User", ["app/models.py"]),
    ("python", "app/main.py", "from app import models", ["app/models.py", "app/__init__.py"]),
    ("python", "app/main.py", "from app.models import (\n  A,  # x\n  B\n)", ["app/models.py"]),
    ("python", "app/main.py", "from .models import *", ["app/models.py"]),
    ("python", "app/v/main.py", "from ..models import A", ["app/models.py"]),
    ("python", "app/v/main.py", "from . import x", ["app/v/x.py", "app/v/__init__.py"]),
    ("python", "app/v/main.py", "from .import x", ["app/v/x.py"]),
    ("python", "app/v/main.py", "from ..imports import(x)", ["app/imports/x.py"]),
    ("python", "tests/test_a.py", "from pkg.a import f", ["src/pkg/a.py", "pkg/a/__init__.py"]),
    ("python", "server/app.py", "from suture.server.codec import C", ["server/codec.py"]),
    ("typescript", "src/app/a.ts", "import x from './b'", ["src/app/b.ts", "src/app/b/index.ts"]),
    ("typescript", "src/a.ts", "import x from '../lib/b.js'", ["lib/b.ts", "lib/b.js"]),
    ("typescript", "src/app/a.ts", "import x from '@/lib/b'", ["src/lib/b.ts"]),
    ("tsx", "a.tsx", "export * from './b'; import './c'", ["b.tsx", "c.tsx"]),
    ("javascript", "a.js", "const b = require('./b'); await import('./c')", ["b.js", "c.js"]),
    ("go", "cmd/main.go", 'import (\n\t"fmt"\n\tx "example.com/m/pkg/x"\n)', ["pkg/x/", "cmd/"]),
    ("rust", "src/main.rs", "mod codec;\nuse crate::net::Peer;", ["src/codec.rs", "src/net.rs"]),
    ("rust", "src/net/mod.rs", "pub(crate) mod peer;", ["src/net/peer.rs", "src/net/peer/mod.rs"]),
    ("rust", "src/net/peer.rs", "use super::wire::Frame;", ["src/net/wire.rs"]),
    ("rust", "src/a.rs", "use crate::{b::C, d};", ["src/b.rs", "src/d.rs"]),
    ("c", "src/a.c", '#include "a.h"\n#include <proj/b.h>', ["src/a.h", "include/proj/b.h"]),
    ("cpp", "lib/x/a.cpp", '# include "util/b.hpp"', ["lib/x/util/b.hpp", "lib/util/b.hpp"]),
    (
        "java",
        "src/test/java/org/x/ATest.java",
        "package org.x;\nimport org.y.B;\nimport static org.z.C.f;\n",
        ["src/main/java/org/y/B.java", "src/test/java/org/z/C.java", "src/main/java/org/x/"],
    ),
    ("kotlin", "src/org/x/A.kt", "package org.x\nimport org.y.*\n", ["src/org/y/", "src/org/x/"]),
    ("php", "src/A.php", "use App\\Models\\User;", ["app/Models/User.php"]),
    ("php", "src/A.php", "require_once __DIR__ . '/b.php';", ["src/b.php"]),
    ("csharp", "src/A.cs", "using System;", ["src/"]),
    ("ruby", "lib/a/b.rb", "require_relative 'c'\nrequire 'a/d'", ["lib/a/c.rb", "lib/a/d.rb"]),
    ("lua", "lua/x/init.lua", "local y = require('x.y')", ["lua/x/y.lua"]),
    ("dart", "lib/a.dart", "import 'package:app/b.dart';", ["lib/b.dart"]),
    ("dart", "lib/x/a.dart", "import 'c.dart';", ["lib/x/c.dart"]),
    ("proto", "proto/a.proto", 'import "b/c.proto";', ["proto/b/c.proto"]),
    ("zig", "src/a.zig", 'const b = @import("b.zig");', ["src/b.zig"]),
    ("bash", "bin/a.sh", 'source "$DIR/lib.sh"\n. ./env.sh', ["bin/lib.sh", "bin/env.sh"]),
    ("scss", "css/a.scss", "@use 'b';", ["css/b.scss"]),
]


@pytest.mark.parametrize(("grammar", "path", "text", "meant"), CASES)
def test_files_that_a_text_names_are_found(
    grammar: str, path: str, text: str, meant: list[str]
) -> None:
    places = {place for mention in mentions(grammar, path, text) for place in mention}
    assert set(meant) <= places


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ("python", "import os.path\nfrom typing import Any"),
        ("typescript", "import React from 'react'"),
        ("markdown", "import a"),
        (None, "import a"),
    ],
)
def test_what_is_not_of_the_workspace_is_not_looked_for(grammar: str | None, text: str) -> None:
    assert mentions(grammar, "src/a", text) == []


def first_there(files: set[str], found: list[Mention]) -> list[str]:
    return [next(place for place in one if place in files) for one in found if files & set(one)]


def test_a_module_of_a_package_is_meant_before_the_package() -> None:
    files = {"app/__init__.py", "app/models.py", "app/main.py"}
    found = mentions("python", "app/main.py", "from app import models, VERSION")
    assert first_there(files, found) == ["app/models.py", "app/__init__.py"]


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("src/a.c", "src/a.h"),
        ("src/x/a.cpp", "include/x/a.hpp"),
        ("include/a.h", "src/a.cc"),
        ("tests/test_a.py", "a.py"),
        ("src/a.py", "tests/test_a.py"),
        ("pkg/a.go", "pkg/a_test.go"),
        ("pkg/a_test.go", "pkg/a.go"),
        ("src/a.spec.ts", "src/a.ts"),
        ("src/a.ts", "src/__tests__/a.test.ts"),
        ("src/test/java/x/ATest.java", "src/main/java/x/A.java"),
        ("src/main/java/x/A.java", "src/test/java/x/ATest.java"),
    ],
)
def test_the_other_half_of_a_file_is_known_by_its_name(path: str, other: str) -> None:
    places = {place for mention in counterparts(path) for place in mention}
    assert other in places
