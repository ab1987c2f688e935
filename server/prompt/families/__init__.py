"""FIM families: which control tokens a model was trained to fill a hole with, and in which order.

A family is data: roles and the texts of their special tokens (`rows`), looked up as ids in a
vocabulary (`detection`). Prompts are put together from ids, never from format strings.

  order     the order a family was trained in: "psm" is prefix, suffix, middle
  sentinel  the control token that opens one of these parts, or stands between files or turns

F1  Control ids in a prompt come from here only, whatever the user's text contains. Therefore each
    sentinel must be exactly one token of a control kind: one that no plain text is encoded to.
"""

from suture.server.prompt.families.detection import (
    FimFamily,
    detect_family,
    families_by_name,
    missing_sentinels,
)
from suture.server.prompt.families.rows import (
    COMMENTED,
    FAMILIES,
    FamilyRow,
    HoleLayout,
    LayoutDefaults,
    Order,
    RepositoryLayout,
    Role,
    TailBoundary,
)

__all__ = [
    "COMMENTED",
    "FAMILIES",
    "FamilyRow",
    "FimFamily",
    "HoleLayout",
    "LayoutDefaults",
    "Order",
    "RepositoryLayout",
    "Role",
    "TailBoundary",
    "detect_family",
    "families_by_name",
    "missing_sentinels",
]
