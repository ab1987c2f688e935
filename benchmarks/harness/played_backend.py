"""A server that plays vLLM over the toy vocabulary and takes 5 ms for a token; prints its URL."""

from __future__ import annotations

import threading

from harness.scripted_words import words
from support.fake_backend import FakeBackend, playing
from support.toy import toy_vocabulary

STEP_S = 0.005

if __name__ == "__main__":
    with playing(FakeBackend(words(toy_vocabulary()), step_s=STEP_S)) as url:
        print(url, flush=True)
        threading.Event().wait()
