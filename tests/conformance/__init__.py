"""Black-box checks that any server of fill-in-the-middle completions can be scored with, over HTTP.

    python -m conformance --url http://127.0.0.1:8012

run in the folder that holds this one. It needs Python 3.11 and httpx2, and nothing of Suture: each
check comes from what users reported of some server or other, says what it sends and what passes.
docs/conformance.md has the scores of two servers.
"""
