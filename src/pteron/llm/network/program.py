"""A decoder's graph enters; the methods and named data of its program leave, as ExecuTorch's exporter names
them: `forward(tokens [1, ≤N], input_pos [1]) -> logits`, and methods that return constants. Of a model that
reads images also `image(patches [1, patches, width]) -> rows [1, rows, dim]`, for one tile of an image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.format.delegate_writer import write_delegate
from pteron.format.program_writer import Bytes, StreamedData, write_program
from pteron.format.records import (
    DelegateCall,
    DelegateGraph,
    DelegateRecord,
    MethodRecord,
    ProgramFile,
    TensorRecord,
)
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import ImageNetwork, Network
from pteron.llm.network.options import IMAGE, LONGEST, Options
from pteron.names.counted_line import CountedLine
from pteron.names.model_files import as_format_error

_WRITING = "writing the weights"
_LINE_SECONDS = 1.0  # between two lines of progress
# The arguments of `forward` in PyTorch's form: (tokens, {"input_pos": positions}).
_INPUT_TREE = (
    '[1, {"type": "builtins.tuple", "context": "null", "children_spec": [{"type": "builtins.tuple", '
    '"context": "null", "children_spec": [{"type": null, "context": null, "children_spec": []}, '
    '{"type": "builtins.dict", "context": "[\\"input_pos\\"]", "children_spec": [{"type": null, '
    '"context": null, "children_spec": []}]}]}, {"type": "builtins.dict", "context": "[]", '
    '"children_spec": []}]}]'
)


@dataclass(frozen=True)
class BuiltProgram:
    """A program whose weights are not read yet."""

    graph: DelegateGraph
    methods: tuple[MethodRecord, ...]
    named_data: Mapping[str, StreamedData]
    longest_context: int  # that may be chosen at load
    longest_rebuilt: int  # of another program, built for a longer context (LongRoPE)

    def records(self, name: str) -> ProgramFile:
        """The program in memory, weights included, as if it had been read from a file: for `Program`."""
        data = {key: data.read() for key, data in self.named_data.items()}
        size = sum(map(len, data.values()))
        return ProgramFile(name, version=0, methods=self.methods, named_data=data, size=size)

    def write(
        self, path: Path, progress: Callable[[str], None] = lambda line: None, name: str = "the model"
    ) -> None:
        """Write the file; `progress` gets a line now and then. Weights that cannot be read are a FormatError
        that names the model; an OSError means that the file cannot be written."""
        with path.open("wb") as file:
            write_program(file, self.methods, _counted(self.named_data, progress, name))


def _counted(
    named_data: Mapping[str, StreamedData], progress: Callable[[str], None], name: str
) -> dict[str, StreamedData]:
    """The same data, which report how much of them is written. `name` is the model's, for errors."""
    total = sum(data.size for data in named_data.values() if data.blocks)
    done, next_line = 0, time.monotonic() + _LINE_SECONDS
    progress(CountedLine.counted(_WRITING, 0, total))

    def blocks_of(data: StreamedData) -> Iterator[Bytes]:
        nonlocal done, next_line
        for block in _read(data, name):
            if time.monotonic() >= next_line:
                progress(CountedLine.counted(_WRITING, done, total))
                next_line = time.monotonic() + _LINE_SECONDS
            yield block
            done += len(block) if isinstance(block, bytes) else block.nbytes

    return {
        name: replace(data, blocks=partial(blocks_of, data)) if data.blocks else data
        for name, data in named_data.items()
    }


def _read(data: StreamedData, name: str) -> Iterator[Bytes]:
    with as_format_error(f"the weights of {name} cannot be read"):
        yield from data.blocks() if data.blocks else ()


def build_program(
    decoder: Callable[[Network], Tensor],
    weights: Mapping[str, StoredTensor],
    options: Options,
    constants: Mapping[str, tuple[int | bool, ...]],
    images: tuple[Callable[[ImageNetwork], tuple[Tensor, Tensor]], Mapping[str, StoredTensor]] | None = None,
) -> BuiltProgram:
    """The program of a decoder. `constants` are the results of further methods, by name; `images` is a vision
    encoder with its weights, which becomes the method `image(patches) -> rows`."""
    net = Network(weights, options)
    logits = decoder(net)
    _check_all_used(net)
    graph = net.graph.finish("forward", [logits])
    constants = {
        # The exporter states one token more than a call may have.
        "get_max_seq_len": (options.max_seq_len + 1,),
        "get_max_context_len": (options.max_context_len,),
        **({LONGEST: (net.longest,)} if net.longest > options.max_context_len else {}),
        "get_vocab_size": (logits.shape[-1],),
        "use_kv_cache": (True,),
        "use_sdpa_with_kv_cache": (True,),
        "enable_dynamic_shape": (True,),
        **constants,
    }
    methods, named_data = [_forward(graph, logits, options)], net.graph.named_data
    if images:
        encoder, image_weights = images
        image_net = ImageNetwork(image_weights, options)
        methods.append(_image(image_net, *encoder(image_net)))
        _check_all_used(image_net)
        named_data = named_data | image_net.graph.named_data
    methods += [
        MethodRecord(name, values, (), tuple(range(len(values))), (), (), ())
        for name, values in constants.items()
    ]
    return BuiltProgram(graph, tuple(methods), named_data, net.longest, net.longest_rebuilt)


def _check_all_used(net: Network) -> None:
    if net.unused:
        names = sorted(net.unused)
        raise UnsupportedError(
            f"{len(names)} weights that the family does not use here, the first is {names[0]}"
        )


def _forward(graph: DelegateGraph, logits: Tensor, options: Options) -> MethodRecord:
    is_dynamic = any(not isinstance(size, int) for size in logits.sizes)
    values = (
        _tensor(DType.I64, (1, options.max_seq_len), is_dynamic=True),
        _tensor(DType.I64, (1,)),
        _tensor(DType.F32, logits.shape, is_dynamic=is_dynamic, allocation=(1, 0)),
    )
    calls = (DelegateCall(0, (0, 1, 2)),)
    return MethodRecord("forward", values, (0, 1), (2,), calls, (), (_delegate(graph),), _INPUT_TREE)


def _image(net: ImageNetwork, patches: Tensor, rows: Tensor) -> MethodRecord:
    values = _tensor(DType.F32, patches.shape), _tensor(DType.F32, rows.shape, allocation=(1, 0))
    delegate = _delegate(net.graph.finish(IMAGE, [rows]))
    return MethodRecord(IMAGE, values, (0,), (1,), (DelegateCall(0, (0, 1)),), (), (delegate,))


def _delegate(graph: DelegateGraph) -> DelegateRecord:
    is_ours = any(node.name.startswith("pteron.") for node in graph.nodes)
    backend = "PteronBackend" if is_ours else "VulkanBackend"
    return DelegateRecord(backend, memoryview(write_delegate(graph)))


def _tensor(
    dtype: DType,
    sizes: tuple[int, ...],
    *,
    is_dynamic: bool = False,
    allocation: tuple[int, int] | None = None,
) -> TensorRecord:
    return TensorRecord(
        dtype=dtype,
        sizes=sizes,
        dim_order=tuple(range(len(sizes))),
        dynamism="bound" if is_dynamic else "static",
        data=None,
        is_constant=False,
        is_mutable=False,
        name=None,
        is_external=False,
        allocation=allocation,
    )
