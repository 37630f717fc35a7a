"""A language model behind HTTP, as OpenAI's clients speak it (the extra `serve`)."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.serving.http.app import create_app
    from pteron.serving.http.limits import Limits
    from pteron.serving.http.logs import Logs
    from pteron.serving.http.server import listening, run

__all__ = ["Limits", "Logs", "create_app", "listening", "run"]

# The modules of these names, imported when they are first asked for.
_HOMES = {"Limits": "limits", "Logs": "logs", "create_app": "app", "listening": "server", "run": "server"}
__getattr__, __dir__ = lazy(__name__, _HOMES, driving={"app"})
