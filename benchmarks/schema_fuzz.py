"""Ask a server all that its document allows and forbids: how often, and what came of it.

    python benchmarks/schema_fuzz.py --examples 400

Schemathesis makes the requests, of both kinds, over HTTP. The server is the real one, over a
scripted engine in place of a model. Every check of schemathesis's holds, and those of
`tests/support/fuzzing.py`. The exit status is schemathesis's, and so are further options
(`--include-path /infill`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support.fuzzing import LEFT_OUT  # noqa: E402
from support.http_server import serving, settings  # noqa: E402
from support.scripted_completer import VOCABULARY, scripted  # noqa: E402
from suture.server.engine.scripted import random_model  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--examples", type=int, default=100, help="of each kind for each route")
    parser.add_argument("--seed", type=int, default=1)
    asked, more = parser.parse_known_args()
    model = random_model(VOCABULARY.n_vocab, seed=3)
    with scripted(model, settings()) as completer, serving(completer) as url:
        command = [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis as s; s()", "run"),
            *(f"{url}/openapi.json", "--phases", "examples,coverage,fuzzing"),
            *("--max-examples", str(asked.examples), "--seed", str(asked.seed)),
            *("--exclude-checks", LEFT_OUT, "--generation-with-security-parameters", "false"),
            *("--continue-on-failure", "--generation-database", "none", "--no-color"),
            *("--request-timeout", "120", "--suppress-health-check", "all", "--warnings", "off"),
            *more,
        ]
        path = os.pathsep.join((str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])))
        hooks = {"SCHEMATHESIS_HOOKS": "support.fuzzing_hooks", "PYTHONPATH": path}
        return subprocess.run(command, env=os.environ | hooks).returncode


if __name__ == "__main__":
    sys.exit(main())
