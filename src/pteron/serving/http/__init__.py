"""A model over HTTP, with OpenAI's API (the extra `serve`)."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.serving.http.app import create_app
    from pteron.serving.http.limits import Limits
    from pteron.serving.http.request_log import Logs
    from pteron.serving.http.server import listening, run
    from pteron.serving.http.telemetry import Traces, open_traces

__all__ = ["Limits", "Logs", "Traces", "create_app", "listening", "open_traces", "run"]

_HOMES = {
    "Limits": "limits",
    "Logs": "request_log",
    "Traces": "telemetry",
    "create_app": "app",
    "listening": "server",
    "open_traces": "telemetry",
    "run": "server",
}
__getattr__, __dir__ = lazy(__name__, _HOMES, driving={"app"})
