"""A PROGRAM -> ONE PAGE: graphs, calls, plans and memory as plain dataclasses, and a file that shows them."""

from pteron.tools.page.gather import Wishes, look_inside
from pteron.tools.page.html import page_text
from pteron.tools.page.report import DelegateInside, ProgramInside

__all__ = ["DelegateInside", "ProgramInside", "Wishes", "look_inside", "page_text"]
