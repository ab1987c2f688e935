"""Headers that every page is sent with, and what it loads: what a browser may do with them."""

from __future__ import annotations

# What every answer is sent with stands elsewhere (`connections.py`).
FILE_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page_headers(scripts: str, styles: str) -> dict[str, str]:
    """The headers of a page whose scripts and styles come from these sources.

    They run, its server may be asked, and nothing else: no text becomes markup.
    """
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; "
        "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return FILE_HEADERS | {"Content-Security-Policy": policy}
