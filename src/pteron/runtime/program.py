"""A program: a loaded .pte file, its methods, and their device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from pteron.errors import DeviceError, InputError, MethodError, UnsupportedError
from pteron.extras import why_refused
from pteron.families.exporter_removed import explained
from pteron.format.bundled import BundledFile, is_bundled, read_bundled
from pteron.format.delegate import BACKENDS, read_delegate
from pteron.format.foreign import RE_EXPORT
from pteron.format.program import read_program
from pteron.format.records import MethodRecord, ProgramFile
from pteron.format.source import Source, open_bytes
from pteron.format.weights import load_weights
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.gpu.worker_pool import gc_paused
from pteron.graph import Graph, build
from pteron.host.lookup import find_operator
from pteron.names.locate import program_files
from pteron.passes import missing_operators, prepare
from pteron.runtime.checks import check_method, with_bounds_of_delegates
from pteron.runtime.kept_states import keep_states
from pteron.runtime.loaded_method import LoadedMethod, NotCopyable, Precision
from pteron.runtime.method import Method
from pteron.runtime.method_memory import with_external_data
from pteron.runtime.sequence import Sequence
from pteron.runtime.specs import describe, table
from pteron.runtime.trace import Trace

Adapt: TypeAlias = Callable[[ProgramFile, Graph], Graph]


def load(
    source: Source,
    data: Iterable[Source] | Source = (),
    device: Device | str | None = None,
    *,
    digits: int | None = None,
    products: str | None = None,
    state: str = "kept",
    adapt: Adapt | None = None,
    trace: Trace | None = None,
) -> Program:
    """Load a program from a .pte or bundled .bpte file, given as a path, as bytes, or as its name at a hub:
    "owner/name", or "owner/name:file.pte" (with the extra `hub`).

    `data` is one or more .ptd weight files, by path or name too. `device` is a Device or part of an adapter's
    name; the default is the environment variable PTERON_ADAPTER, or the most capable adapter. A method's
    weights are uploaded when the method is first used.

    `digits` sets the precision of products with 4-bit weights on a GPU when there are only a few rows, as in
    decoding. 3 is as exact as f32, and the default unless PTERON_DIGITS is set. 2 is faster; its error is
    2e-5 to 8e-5 of the products' size. `products="f16"` rounds f32 numbers to f16 where matrix cores multiply
    them, which is faster; the default is "f32", or what PTERON_PRODUCTS says.

    The GPU computes integers with 32 bits, PyTorch with 64: on the GPU, sums, differences and products wrap.
    An input that exceeds 32 bits is an error.

    Buffers that a compiled module writes are states, which a method keeps between calls. With
    `state="explicit"` they are inputs and outputs, `state.NAME`.

    `adapt` changes the graph of each delegate before it is planned. `trace` gets the times of every call,
    which then waits for the GPU.
    """
    source, weight_files = program_files(source, data)
    with gc_paused():  # loading makes many objects, and none of them is garbage
        opened = open_bytes(source)
        bundle = read_bundled(opened.view, opened.name) if is_bundled(opened.view) else None
        file = read_program(bundle.program if bundle else opened.view, opened.name)
        precision = Precision.chosen(digits, products)
        weights = load_weights(weight_files)
        return Program(file, weights, device, bundle, precision, state=state, adapt=adapt, trace=trace)


class Program(NotCopyable):
    """A loaded program: `program["forward"](x)` runs its method `forward`.

    `with pteron.load(path) as program:` frees the GPU memory at the end of the block.
    """

    def __init__(
        self,
        file: ProgramFile,
        weights: Mapping[str, memoryview],
        device: Device | str | None,
        bundle: BundledFile | None = None,
        precision: Precision | None = None,
        *,
        state: str = "kept",
        adapt: Adapt | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._trace = trace
        self.file = file
        self.bundle = bundle
        self.precision = precision or Precision()
        self._device = Device.open(device) if device is not None else None
        self._records = {record.name: with_external_data(file, record, weights) for record in file.methods}
        self._loaded: dict[str, LoadedMethod] = {}
        self._own = Sequence(self._load)
        self._sequences: WeakSet[Sequence] = WeakSet()
        self._lock = new_lock()
        self._closed = False
        self._stored = {record.name: read_graphs(file, record, weights) for record in file.methods}
        check_supported(file, self._stored)
        self._operators = {
            record.name: [operator for name in record.operators if (operator := find_operator(name))]
            for record in file.methods
        }
        self._graphs = dict(self._stored)
        if _is_kept(state):
            self._keep_states()
        if adapt is not None:
            self._graphs = {
                name: [adapt(file, graph) for graph in graphs] for name, graphs in self._graphs.items()
            }
        # Prepared here, before a device is open: errors of a graph do not depend on the device.
        self._prepared = {name: list(map(prepare, graphs)) for name, graphs in self._graphs.items()}
        for name, record in self._records.items():
            operators, graphs = self._operators[name], self._graphs[name]
            check_method(f"{file.name}, method {name}", record, operators, graphs)
            self._records[name] = with_bounds_of_delegates(record, operators, graphs)

    def _keep_states(self) -> None:
        """Make states of the inputs and outputs of compiled modules that are buffers."""
        for name, record in self._records.items():
            operators, graphs = self._operators[name], self._graphs[name]
            self._records[name], self._graphs[name] = keep_states(self.file, record, operators, graphs)

    def __repr__(self) -> str:
        return f"<pteron.Program {self.file.name}: {', '.join(self.methods)}>"

    def _repr_html_(self) -> str:
        # Of a method that is not loaded, every dim of a dynamic tensor counts as dynamic.
        sides = {
            name: describe(record, [None] * len(record.delegates)) for name, record in self._records.items()
        }
        sides |= {name: method.specs for name, method in self._loaded.items()}
        rows = [(name, *(", ".join(map(str, specs)) for specs in both)) for name, both in sides.items()]
        return table(f"{self.file.name}, {self.file.size:,} bytes", ("method", "inputs", "outputs"), rows)

    if not TYPE_CHECKING:  # type checkers still report unknown attributes

        def __getattr__(self, name: str) -> Method:
            """`program.forward` is short for `program["forward"]`; attributes of Program come first."""
            if name.startswith("_") or name not in self._records:
                raise AttributeError(f"{self!r} has no attribute and no method {name!r}")
            return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *filter(str.isidentifier, self.methods)]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.methods)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods."""
        return tuple(self._records)

    @property
    def device(self) -> Device:
        """The device the methods run on; it opens in the background when it is first asked for."""
        if self._device is None:
            self._device = Device.begin()
        return self._device

    def __getitem__(self, name: str) -> Method:
        """A method; it is loaded onto the device at the first use."""
        with self._lock:
            return self._own[name]

    def sequence(self) -> Sequence:
        """A new sequence of calls: the same methods with their own states, such as a KV cache. Weights,
        kernels and plans are shared, so a sequence only takes GPU memory for its states. Close the sequence
        or the program to free it."""
        with self._lock:
            sequence = Sequence(self._load)
            self._sequences.add(sequence)
            return sequence

    def _load(self, name: str) -> LoadedMethod:
        record = self.record(name)
        with self._lock:
            if self._closed:
                raise DeviceError(f"{self.file.name}: the program is closed")
            if name not in self._loaded:
                graphs = self._prepared[name]
                device = self._device
                if graphs and device is None:
                    device = Device.begin()  # it opens during planning
                self._loaded[name] = LoadedMethod(
                    self.file.name, record, graphs, self._operators[name], device, self.precision, self._trace
                )
                self._device = device
            return self._loaded[name]

    def record(self, name: str) -> MethodRecord:
        """A method's record, with external tensors and the bounds that calls may use."""
        if name not in self._records:
            raise MethodError(f"{self.file.name} has no method {name!r}; it has {', '.join(self.methods)}")
        return self._records[name]

    def graphs(self, name: str, *, stored: bool = False) -> tuple[Graph, ...]:
        """The graphs of a method's delegates, before rewrites; `stored`: unchanged from the file."""
        return tuple((self._stored if stored else self._graphs)[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def reload(self) -> None:
        """Load the program again; after DeviceLost, on a new device of the same adapter. States are lost, and
        methods and sequences must be taken from the program again."""
        with self._lock:
            if self._closed:
                raise DeviceError(f"{self.file.name}: the program is closed")
            device = self._device.reopen() if self._device else None
            self._leave()
            self._own = Sequence(self._load)
            self._device = device

    def close(self) -> None:
        """Free the GPU memory of all methods and sequences; the shared device stays open."""
        with self._lock:
            self._closed = True
            self._leave()

    def _leave(self) -> None:
        for sequence in (self._own, *self._sequences):
            sequence.close()
        for method in self._loaded.values():
            method.close()
        self._loaded.clear()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_kept(state: str) -> bool:
    if state not in ("kept", "explicit"):
        raise InputError(f'state={state!r}: expected "kept" or "explicit"')
    return state == "kept"


def read_graphs(file: ProgramFile, record: MethodRecord, weights: Mapping[str, memoryview]) -> list[Graph]:
    """The graphs of a method's delegates, by their order in the file."""
    foreign = sorted({delegate.backend for delegate in record.delegates if delegate.backend not in BACKENDS})
    if foreign:
        raise UnsupportedError(
            f"{file.name}, method {record.name}: delegates for {', '.join(foreign)};"
            f" only those for {' and '.join(BACKENDS)} run here: {RE_EXPORT}"
        )

    def named(key: str) -> memoryview | None:
        found = file.named_data.get(key)
        return weights.get(key) if found is None else found

    graphs = []
    for index, delegate in enumerate(record.delegates):
        name = f"{file.name}, {record.name}, delegate {index}"
        graphs.append(build(read_delegate(delegate.blob, name, named)))
    return graphs


def check_supported(file: ProgramFile, graphs: Mapping[str, Iterable[Graph]]) -> None:
    """Raise one UnsupportedError that lists everything in a program that Pteron does not support."""
    problems = []
    delegated = sorted(
        {name for of_method in graphs.values() for graph in of_method for name in missing_operators(graph)}
    )
    if delegated:
        problems.append(
            f"delegate operators that Pteron does not have: {', '.join(map(explained, delegated))}"
        )
    names = {name for record in file.methods for name in record.operators}
    hosted = sorted(name for name in names if find_operator(name) is None)
    if hosted:
        problems.append(why_refused(*hosted))
    if problems:
        raise UnsupportedError(f"{file.name}: {'; '.join(problems)}")
