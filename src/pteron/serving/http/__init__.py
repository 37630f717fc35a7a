"""A model over HTTP, with OpenAI's API (the extra `serve`)."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.serving.http.app import create_app
    from pteron.serving.http.limits import Limits
    from pteron.serving.http.request_log import Logs
    from pteron.serving.http.server import listening, run

__all__ = ["Limits", "Logs", "create_app", "listening", "run"]

_HOMES = {
    "Limits": "limits",
    "Logs": "request_log",
    "create_app": "app",
    "listening": "server",
    "run": "server",
}
__getattr__, __dir__ = lazy(__name__, _HOMES, driving={"app"})
