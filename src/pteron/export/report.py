"""A lowered program -> lines that say what runs on the GPU, what on the host, and how much that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pteron.format import KernelCall, MethodRecord
from pteron.graph import Graph

_NO_WORK = {"et_vk.prepack.default"}  # brings a weight to the GPU


def report_lines(methods: Sequence[MethodRecord], delegates: Sequence[Graph]) -> Iterator[str]:
    """The operators of one method's delegates, and those outside them."""
    on_gpu = [gpu_operators(graph) for graph in delegates]
    on_host = host_operators(methods)
    hosted, delegated = on_host.total(), sum(uses.total() for uses in on_gpu)
    total = max(1, hosted + delegated)
    share, parts = f"{delegated / total:.0%}", _counted(len(on_gpu), "delegate")
    yield f"  on the GPU   {_counted(delegated, 'operator')}, {share}, in {parts}"
    for index, uses in enumerate(on_gpu):
        yield f"    delegate {index}   {_counted(uses.total(), 'operator')}: {_listed(uses)}"
    names = f": {_listed(on_host)}" if hosted else ""
    yield f"  on the host  {_counted(hosted, 'operator')}, {hosted / total:.0%}{names}"


def gpu_operators(graph: Graph) -> Counter[str]:
    """How often each operator stands in a delegate."""
    return Counter(node.name for node in graph.nodes if node.name not in _NO_WORK)


def host_operators(methods: Sequence[MethodRecord]) -> Counter[str]:
    """How often each operator stands outside the delegates."""
    return Counter(
        record.operators[call.operator]
        for record in methods
        for call in record.instructions
        if isinstance(call, KernelCall)
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(uses: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in uses.most_common())
