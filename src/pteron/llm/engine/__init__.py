"""Many requests, one model: requests come in from any thread, answers go out as streams."""

from pteron.llm.engine.answer import Answer
from pteron.llm.engine.engine import Engine
from pteron.llm.engine.load import Load
from pteron.llm.engine.request import Busy, Request

__all__ = ["Answer", "Busy", "Engine", "Load", "Request"]
