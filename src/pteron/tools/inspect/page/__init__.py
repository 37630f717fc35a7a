"""A program -> one HTML page: graphs, calls, plans and memory as dataclasses, and the page that shows
them."""

from pteron.tools.html import build_page
from pteron.tools.inspect.page.details import DelegateDetails, ProgramDetails
from pteron.tools.inspect.page.gather import PageOptions, program_details
from pteron.tools.text import plain

__all__ = ["DelegateDetails", "PageOptions", "ProgramDetails", "page_text", "program_details"]


def page_text(details: ProgramDetails) -> str:
    return build_page(__name__, f"{details.name} · Pteron", plain(details))
