"""What Tabby's dialect answers with; its errors are OpenAI's."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from suture.server.routes.shapes.suture import SutureObject


class TabbyChoice(TypedDict):
    """The candidate: its text goes in at the cursor."""

    index: int
    text: str


class TabbyCompletion(TypedDict):
    """The answer to a body with `segments`."""

    id: str
    choices: list[TabbyChoice]
    mode: str
    suture: SutureObject
    debug_data: NotRequired[dict[str, Any]]


class TabbyVersion(TypedDict):
    """Without numbers, which clients would take for Tabby's."""

    git_describe: str
    git_sha: str
    build_date: str
    build_timestamp: str


class TabbyHealthState(TypedDict):
    """The answer of `/v1/health`."""

    status: str
    model: str
    device: str
    arch: str
    cpu_info: str
    cpu_count: int
    cuda_devices: list[str]
    version: TabbyVersion
    webserver: bool
    suture: str


class TabbySetting(TypedDict):
    """The answer of `/v1beta/server_setting`."""

    disable_client_side_telemetry: Literal[True]
