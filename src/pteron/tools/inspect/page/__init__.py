"""A program -> one HTML page: graphs, calls, plans and memory as dataclasses, the page that shows them, and
the final WGSL of a kernel's launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pteron.errors import InputError
from pteron.tools.inspect.page.details import DelegateDetails, KernelDetails, LaunchDetails, ProgramDetails
from pteron.tools.inspect.page.gather import PageOptions, program_details
from pteron.tools.text import Line, build_page, plain

__all__ = ["DelegateDetails", "PageOptions", "ProgramDetails", "kernel_lines", "page_text", "program_details"]


def page_text(details: ProgramDetails) -> str:
    return build_page(__name__, f"{details.name} · Pteron", plain(details))


def kernel_lines(inside: ProgramDetails, name: str) -> Iterator[str]:
    """WGSL, after comments that say which launches run it, with which grids, buffers and Params."""
    texts: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for where, launch in _launches(inside):
        about = _about(where, launch, inside.kernels[launch.kernel])
        texts[launch.kernel][about].append(launch.node)  # repeated layers: one comment, many nodes
    names = dict.fromkeys(inside.kernels[kernel].name for kernel in texts)
    if name not in names:
        known = f"there are {', '.join(names)}" if names else "its plans have no launches"
        raise InputError(f"{inside.name} launches no kernel {name!r}; {known}")
    for kernel, launches in texts.items():
        details = inside.kernels[kernel]
        if details.name != name:
            continue
        for about, nodes in launches.items():
            first, *rest = about.splitlines()
            yield Line(f"// {first}, of node {', '.join(map(str, nodes))}", "title")
            yield from (Line(f"//   {line}", "note") for line in rest)
        yield from (details.source or "").splitlines()
        yield ""


def _launches(inside: ProgramDetails) -> Iterator[tuple[str, LaunchDetails]]:
    for method in inside.methods:
        for delegate in method.delegates:
            for plan in delegate.plans:
                yield from ((f"{method.name}, {delegate.name}, {plan.title}", each) for each in plan.launches)


def _about(where: str, launch: LaunchDetails, kernel: KernelDetails) -> str:
    """A launch in two or three lines, without its node."""
    grid, size = ("x".join(map(str, each)) for each in (launch.groups, kernel.workgroup))
    bound = ", ".join(f"{each.name}: {each.kind} of {each.bytes} bytes" for each in launch.buffers)
    given = ", ".join(f"{name} = {value}" for name, value in launch.parameters.items())
    return "\n".join(filter(None, (f"{where}: {grid} workgroups of {size}", bound, given)))
