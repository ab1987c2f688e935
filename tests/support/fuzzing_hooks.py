"""What schemathesis's command loads for `benchmarks/schema_fuzz.py`: our checks, and a count."""

from __future__ import annotations

import atexit
import collections
import sys
from typing import Any

import schemathesis
from schemathesis import Case, HookContext, Response

from support.fuzzing import accepted_or_beyond_schemas, described, make_sensible
from support.toy import toy_vocabulary

_N_VOCAB = toy_vocabulary().n_vocab
_statuses: collections.Counter[tuple[str, int]] = collections.Counter()

schemathesis.check(accepted_or_beyond_schemas)
schemathesis.check(described())


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: object) -> None:
    make_sensible(case, _N_VOCAB)


@schemathesis.hook
def after_call(context: HookContext, case: Case[Any], response: Response) -> None:
    _statuses[case.operation.path, response.status_code] += 1


@atexit.register
def _count() -> None:
    columns = sorted({status for _, status in _statuses})
    rows = sorted({route for route, _ in _statuses})
    print("".join(f"{title:>9}" for title in ("cases", *columns)) + "  route", file=sys.stderr)
    for route in [*rows, "all"]:
        counts = [
            sum(n for (one, at), n in _statuses.items() if at == status and route in (one, "all"))
            for status in columns
        ]
        shown = "".join(f"{n:>9,}" for n in (sum(counts), *counts))
        print(f"{shown}  {route}", file=sys.stderr)
