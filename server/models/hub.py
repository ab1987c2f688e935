"""A model file of a hub repository, through huggingface_hub.

The library brings endpoint, token, proxy and offline mode as the user set them. The transfer
itself is ours, since the library no longer resumes one that was cut short.

1. The partial file's name holds the etag, so parts of two versions are never joined.
2. A hub that does not answer is given up after `CONNECT_S`, and a transfer after `ATTEMPTS`.
3. Redirects are followed on the hub's own hosts, and on those where huggingface.co keeps its files;
   the token goes to none of the others, and nothing goes from https to http.
4. No more is written than the hub said that there is.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from suture.server.models.source import Expected, Meter, SourceError, one_line

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

CONNECT_S = 5.0
READ_S = 10.0
ATTEMPTS = 4
_MAX_REDIRECTS = 5
_STORES = ("huggingface.co", "hf.co")


@dataclass(frozen=True, slots=True)
class HubFile:
    """``hf:OWNER/REPO/PATH[@REVISION]``."""

    spec: str
    repo: str
    path: str
    revision: str

    @classmethod
    def parse(cls, spec: str, rest: str) -> HubFile:
        """The source that `spec` writes. Raises ValueError."""
        match = re.fullmatch(r"([^/@]+/[^/@]+)/([^@]+)(?:@(.+))?", rest)
        if match is None:
            raise ValueError(f"expected hf:OWNER/REPO/PATH[@REVISION], not {spec!r}")
        return cls(spec, match[1], match[2], match[3] or "main")

    def expected(self, listed: Expected) -> Expected:
        """`listed`, completed by the hub's linked size and checksum, and not against them."""
        if listed.sha256 is not None and self._cached(listed.sha256) is not None:
            return listed
        metadata = self._metadata()
        linked = metadata.etag if re.fullmatch(r"[0-9a-f]{64}", metadata.etag or "") else None
        if listed.sha256 is None and linked is None:
            raise SourceError("the hub tells no sha256 for this file, models.txt must")
        if listed.sha256 is not None and linked is not None and linked != listed.sha256:
            raise SourceError(f"wrong checksum: the hub's file has sha256 {linked[:12]}…")
        if None not in (listed.n_bytes, metadata.size) and listed.n_bytes != metadata.size:
            raise SourceError(f"wrong size: the hub's file has {metadata.size} bytes")
        return Expected(listed.n_bytes or metadata.size, listed.sha256 or linked)

    def space(self, n_bytes: int) -> int:
        """The file itself: it grows in place."""
        return n_bytes

    def fetch(self, folder: Path, expected: Expected, meter: Meter) -> Path:
        """The file, from the user's hub cache or the hub."""
        if expected.sha256 and (cached := self._cached(expected.sha256)) is not None:
            return _copy(cached, folder / "cached")
        metadata = self._metadata()
        etag = re.sub(r"[^0-9A-Za-z]", "", metadata.etag or "") or "none"
        partial = folder / f"{etag}.incomplete"
        partial.touch()
        meter.advance(partial.stat().st_size)
        for attempt in range(1, ATTEMPTS + 1):
            before = partial.stat().st_size
            if before == metadata.size:
                break
            if metadata.size is not None and before > metadata.size:
                os.truncate(partial, 0)
            try:
                self._transfer(partial, meter, metadata.size or expected.n_bytes)
                break
            except SourceError:
                # Worth another try only while bytes keep coming.
                if attempt == ATTEMPTS or partial.stat().st_size == before:
                    raise
        return partial

    def _transfer(self, partial: Path, meter: Meter, size: int | None) -> None:
        """Append what is missing; starts over where the server knows no ranges."""
        from huggingface_hub import hf_hub_url

        headers = {"Accept-Encoding": "identity"}
        if offset := partial.stat().st_size:
            headers["Range"] = f"bytes={offset}-"
        url = hf_hub_url(self.repo, self.path, revision=self.revision)
        with _reasons(), _response(httpx2.URL(url), headers) as response:
            response.raise_for_status()
            resumed = response.status_code == httpx2.codes.PARTIAL_CONTENT
            with partial.open("ab" if resumed else "wb") as file:
                # As they come: chunks of a fixed size would be lost when the transfer is cut.
                for chunk in response.iter_bytes():
                    if size is not None and file.tell() + len(chunk) > size:
                        raise SourceError(f"more than the {size} bytes that it should have")
                    file.write(chunk)
                    meter.advance(len(chunk))

    def _metadata(self) -> HfFileMetadata:
        with _reasons():
            from huggingface_hub import get_hf_file_metadata, hf_hub_url

            url = hf_hub_url(self.repo, self.path, revision=self.revision)
            return get_hf_file_metadata(url, timeout=CONNECT_S)

    def _cached(self, sha256: str) -> Path | None:
        """The file in the user's hub cache, where a large file's blob is named by its sha256."""
        with _reasons():
            from huggingface_hub import try_to_load_from_cache

            found = try_to_load_from_cache(self.repo, self.path, revision=self.revision)
            blob = Path(found).resolve() if isinstance(found, str) else None
            return blob if blob is not None and blob.name == sha256 else None


@contextmanager
def _response(hub: httpx2.URL, headers: dict[str, str]) -> Iterator[httpx2.Response]:
    """What the hub answers, behind its redirects."""
    from huggingface_hub import get_session, get_token

    token, url = get_token(), hub
    for _ in range(_MAX_REDIRECTS):
        is_hub = (url.scheme, url.netloc) == (hub.scheme, hub.netloc)
        known = {"Authorization": f"Bearer {token}"} if token and is_hub else {}
        with get_session().stream(
            "GET",
            url,
            headers=headers | known,
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            follow_redirects=False,
        ) as response:
            if not response.has_redirect_location:
                yield response
                return
            url = response.url.join(response.headers["Location"])
        if not _is_hubs(url, hub):
            raise SourceError(f"the hub redirects to {url.host}, which is none of its hosts")
    raise SourceError(f"the hub redirects more than {_MAX_REDIRECTS} times")


def _is_hubs(url: httpx2.URL, hub: httpx2.URL) -> bool:
    """Whether the hub may keep its files there."""
    if url.scheme != "https" and url.scheme != hub.scheme:
        return False
    if url.host == hub.host or url.host.endswith(f".{hub.host}"):
        return True
    return url.scheme == "https" and any(
        url.host == store or url.host.endswith(f".{store}") for store in _STORES
    )


@contextmanager
def _reasons() -> Iterator[None]:
    """Turn what huggingface_hub and its HTTP client raise into a `SourceError`."""
    try:
        yield
    except ImportError:
        raise SourceError("huggingface_hub is not installed: pip install huggingface-hub") from None
    except (httpx2.ConnectError, httpx2.TimeoutException) as error:
        raise SourceError(f"the hub cannot be reached ({one_line(error)})") from None
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise SourceError(one_line(error)) from None


def _copy(cached: Path, target: Path) -> Path:
    """A hard link where that works, so that a cached model is not on disk twice."""
    target.unlink(missing_ok=True)
    try:
        os.link(cached, target)
    except OSError:
        shutil.copyfile(cached, target)
    return target
