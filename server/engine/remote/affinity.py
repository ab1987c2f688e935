"""Which backend a request is for: the same one for the same cursor, over processes and restarts.

An engine answers the next key of one who types within milliseconds if it has the text before it in
its cache, and no other replica has. So all requests of a *key*, a digest of tenant, user and file,
prefer the same backends in the same order: the order of the *weights* that each backend's name has
together with the key (rendezvous hashing, also called highest random weight).

  R1  An order is a permutation of the names, and depends on nothing but the key and the names: not
      on their order, and not on the process.
  R2  A backend that is added is the first choice of its share of the keys alone, and one that is
      taken away leaves the order of all others as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

KEY_LENGTH = 16
# What gateways read a key from that stand before several engines. The first one is vllm-router's,
# and where a header can be named (nginx, Envoy, the router of vLLM's production stack) it serves as
# well; the second one is that of SGLang's gateway, which stands before other engines, too.
_HEADERS = ("X-Session-ID", "X-SMG-Routing-Key")


def affinity_key(tenant: str, user: str, file: str) -> str:
    """The key of a file, or of a session, of a user: 16 hex digits that tell nothing of either."""
    # As JSON, so that no name can reach into the next one.
    named = json.dumps([tenant, user, file]).encode()
    return hashlib.sha256(named).hexdigest()[:KEY_LENGTH]


def routing_headers(key: str) -> dict[str, str]:
    """The headers by which a gateway sends all requests of a key to one engine."""
    return dict.fromkeys(_HEADERS, key)


def rendezvous(key: str, names: Iterable[str]) -> list[str]:
    """The names, that which the key prefers first."""
    return sorted(names, key=lambda name: (_weight(key, name), name), reverse=True)


def _weight(key: str, name: str) -> bytes:
    # Neither part holds a NUL: a key is hex digits, a name a URL.
    return hashlib.sha256(f"{key}\0{name}".encode()).digest()
