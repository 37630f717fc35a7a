"""A program: a loaded .pte, its methods, and the device they run on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from pteron.errors import DeviceError, MethodError, UnsupportedError
from pteron.extras import why_refused
from pteron.families.exporter_removed.operators import explained
from pteron.format import (
    BACKEND,
    BundledFile,
    MethodRecord,
    ProgramFile,
    is_bundled,
    load_weights,
    open_bytes,
    read_bundled,
    read_delegate,
    read_program,
)
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.gpu.worker_pool import collecting_nothing
from pteron.graph import Graph, build
from pteron.host.lookup import find_operator
from pteron.host.operator import HostOperator
from pteron.ops import Target
from pteron.passes import missing_operators, prepare
from pteron.runtime.checks import check_method
from pteron.runtime.external import with_external_data
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.method import Method
from pteron.runtime.notebook import table
from pteron.runtime.precision import chosen_digits
from pteron.runtime.sequence import Sequence
from pteron.runtime.specs import ValueSpec, describe

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview


def load(
    source: Source,
    data: Iterable[Source] | Source = (),
    device: Device | str | None = None,
    *,
    digits: int | None = None,
    check_integers: bool = False,
) -> Program:
    """Open a program: a .pte or bundled .bpte, by path or as bytes.

    `data` names .ptd weight files. `device` is a Device or part of an adapter's name; without it the
    environment variable PTERON_ADAPTER decides, or the most capable adapter is taken. Nothing is uploaded
    before a method is first asked for.

    `digits` says how exactly a GPU multiplies a few rows with 4-bit weights: 3, the default unless the
    environment variable PTERON_DIGITS says otherwise, is as good as f32; 2 is quicker, with errors of 2e-5
    to 8e-5 of the products' size.

    `check_integers` refuses calls whose integers may leave 32 bits on the GPU, with a DtypeError that names
    the node: sums, differences and products wrap there, where PyTorch has 64 bits. Inputs beyond 32 bits are
    refused in any case.
    """
    with collecting_nothing():  # a graph is many objects, and none of them garbage
        opened = open_bytes(source)
        bundle = read_bundled(opened.view, opened.name) if is_bundled(opened.view) else None
        file = read_program(bundle.program if bundle else opened.view, opened.name)
        exactness = chosen_digits(digits)
        weights = load_weights(data)
        return Program(file, weights, device, bundle, exactness, check_integers=check_integers)


class Program:
    """Methods by name: `program["forward"](x)`. A context manager: leaving it frees its GPU memory."""

    def __init__(
        self,
        file: ProgramFile,
        weights: Mapping[str, memoryview],
        device: Device | str | None,
        bundle: BundledFile | None = None,
        digits: int = Target().digits,
        *,
        check_integers: bool = False,
    ) -> None:
        self.file = file
        self.bundle = bundle
        self.digits = digits
        self._check_integers = check_integers
        self._device = Device.open(device) if device is not None else None
        self._records = {record.name: with_external_data(file, record, weights) for record in file.methods}
        self._codes: dict[str, LoadedMethod] = {}
        self._own = Sequence(self._code)
        self._sequences: WeakSet[Sequence] = WeakSet()
        self._lock = new_lock()
        self._closed = False
        self._graphs = {record.name: read_graphs(file, record, weights) for record in file.methods}
        check_supported(file, self._graphs)
        self._operators = {record.name: _host_operators(record) for record in file.methods}
        # What is wrong with a graph is wrong on every device.
        self._prepared = {name: list(map(prepare, graphs)) for name, graphs in self._graphs.items()}
        for name, record in self._records.items():
            check_method(f"{file.name}, method {name}", record, self._operators[name], self._graphs[name])

    def __repr__(self) -> str:
        return f"<pteron.Program {self.file.name}: {', '.join(self.methods)}>"

    def _repr_html_(self) -> str:
        loaded = {name: code.specs for name, code in self._codes.items()}
        rows = [
            (record.name, *(", ".join(map(str, side)) for side in loaded.get(record.name, _declared(record))))
            for record in self.file.methods
        ]
        return table(f"{self.file.name}, {self.file.size:,} bytes", ("method", "inputs", "outputs"), rows)

    if not TYPE_CHECKING:  # a type checker shall go on telling which attributes there are

        def __getattr__(self, name: str) -> Method:
            """`program.forward` is `program["forward"]`, where no attribute has that name."""
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
        """The device the methods run on, opened when first needed."""
        if self._device is None:
            self._device = Device.open()
        return self._device

    def __getitem__(self, name: str) -> Method:
        """A method, loaded onto the device at first use."""
        with self._lock:
            return self._own[name]

    def sequence(self) -> Sequence:
        """Another sequence of calls: the same methods over states of their own. It costs GPU memory for its
        states alone; weights, kernels and plans are shared. Close it, or the program, to free them."""
        with self._lock:
            sequence = Sequence(self._code)
            self._sequences.add(sequence)
            return sequence

    def _code(self, name: str) -> LoadedMethod:
        if name not in self._records:
            raise MethodError(f"{self.file.name} has no method {name!r}; it has {', '.join(self.methods)}")
        with self._lock:
            if self._closed:
                raise DeviceError(f"{self.file.name}: the program is closed")
            if name not in self._codes:
                graphs = self._prepared[name]
                device = self._device
                if graphs and device is None:
                    device = Device.begin()  # it opens while plans are made
                record, operators = self._records[name], self._operators[name]
                self._codes[name] = LoadedMethod(
                    self.file.name, record, graphs, operators, device, self.digits,
                    check_integers=self._check_integers,
                )  # fmt: skip
                self._device = device
            return self._codes[name]

    def graphs(self, name: str) -> tuple[Graph, ...]:
        """The graphs of a method's delegates, as the file has them."""
        return tuple(self._graphs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def reload(self) -> None:
        """Start over, on a new device of the same adapter where the program's was lost: the remedy for
        DeviceLost. Methods and sequences are to be asked for anew; what they kept between calls is gone."""
        with self._lock:
            if self._closed:
                raise DeviceError(f"{self.file.name}: the program is closed")
            device = self._device.again() if self._device else None
            self._leave()
            self._own = Sequence(self._code)
            self._device = device

    def close(self) -> None:
        """Free the GPU memory of all methods and sequences; the shared device stays open."""
        with self._lock:
            for code in self._codes.values():
                with code.lock:  # other threads' calls end first
                    code.turn.check_free(code.where)
            self._closed = True
            self._leave()

    def _leave(self) -> None:
        for sequence in (self._own, *self._sequences):
            sequence.close()
        for code in self._codes.values():
            code.close()
        self._codes.clear()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_graphs(file: ProgramFile, record: MethodRecord, weights: Mapping[str, memoryview]) -> list[Graph]:
    """The graphs of a method's delegates, by their order in the file."""
    foreign = sorted({delegate.backend for delegate in record.delegates if delegate.backend != BACKEND})
    if foreign:
        raise UnsupportedError(
            f"{file.name}, method {record.name}: delegates for {', '.join(foreign)}; only {BACKEND} runs here"
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
    """One error for everything that a program needs and Pteron cannot give."""
    problems = []
    delegated = sorted(
        {name for of_method in graphs.values() for graph in of_method for name in missing_operators(graph)}
    )
    if delegated:
        problems.append(
            f"delegate operators that Pteron does not have: {', '.join(map(explained, delegated))}"
        )
    hosted = missing_host_operators(file)
    if hosted:
        problems.append(why_refused(*hosted))
    if problems:
        raise UnsupportedError(f"{file.name}: {'; '.join(problems)}")


def missing_host_operators(file: ProgramFile) -> list[str]:
    """Operators outside the delegates that nothing here can run."""
    names = {name for record in file.methods for name in record.operators}
    return sorted(name for name in names if find_operator(name) is None)


def _declared(record: MethodRecord) -> tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]]:
    """What a method takes and gives, as far as the file says: of a tensor that may vary, any dim may."""
    return describe(record, [None] * len(record.delegates))


def _host_operators(record: MethodRecord) -> list[HostOperator]:
    return [operator for name in record.operators if (operator := find_operator(name)) is not None]
