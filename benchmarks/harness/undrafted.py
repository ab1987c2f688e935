"""Our server without drafts, which no setting takes out: what they are measured against.

python benchmarks/harness/undrafted.py serve [FLAGS]
"""

from __future__ import annotations

import sys
from functools import partial

from suture.server import cli, worker
from suture.server.commands import serve
from suture.server.decoding.drafts import DraftWidth
from suture.server.engine import runs
from suture.server.worker_process import start_worker

_WORKER = "--worker"


class NoDrafts(DraftWidth):
    """Never proposes one."""

    def best(self, n_matched: int, n_available: int) -> int:
        return 0


def main() -> int:
    if sys.argv[1:] == [_WORKER]:
        from suture.server.local import build_pool

        vars(runs).update(DraftWidth=NoDrafts)
        return worker.main(build_pool)
    command = (sys.executable, "-P", __file__, _WORKER)
    vars(serve).update(start_worker=partial(start_worker, command=command))
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
