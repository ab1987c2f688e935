"""From a request's text to the ids of its prompt. Pure: no engine, no HTTP, no threads."""

from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily, LayoutDefaults, detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.windows import CursorWindows, Window

__all__ = [
    "CursorWindows",
    "FimFamily",
    "LayoutDefaults",
    "PromptBudget",
    "PromptPlan",
    "Window",
    "detect_family",
    "plan_prompt",
]
