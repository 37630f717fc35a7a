"""One decode stack for all generations: requests in, tokens out.

`Engine` runs many requests on a thread of its own (`LLM.stream`, `LLM.generate_batch`, `pteron serve`);
`LLM.generate`, `LLM.chat` and `generate_step` run one request on the calling thread. Both use the same
steppers and turns. docs/rooms/language-models.md follows a request from `LLM.generate` to the GPU.
"""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.llm.engine.answer import Answer, Stream
    from pteron.llm.engine.engine import Engine
    from pteron.llm.engine.load import Load
    from pteron.llm.engine.queue import Busy
    from pteron.llm.request import Request

__all__ = ["Answer", "Busy", "Engine", "Load", "Request", "Stream"]

_HOMES = {
    **dict.fromkeys(("Answer", "Stream"), "answer"),
    "Busy": "queue",
    "Engine": "engine",
    "Load": "load",
    "Request": "pteron.llm.request",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
