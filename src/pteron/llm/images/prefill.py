"""ImagePrefill: runs chunks of a prompt that have rows of images.

In: a chunk's ids, and tiles of images. Out: a sequence whose KV cache holds them. The graph is that of the
language model, with rows of the vision encoder in place of some token embeddings; it shares weights and KV
caches with the model's own graph, which stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.gpu import Buffer, Copy, submit
from pteron.graph import Graph, Node, Tensor
from pteron.graph.values import ids_of
from pteron.host.tensors import GpuTensor, View
from pteron.llm.derived_graph import DerivedGraph
from pteron.llm.images.processor import ImageProcessor
from pteron.llm.images.prompt import PromptImage, key_and_row
from pteron.llm.model import LanguageModel
from pteron.llm.network.options import IMAGE

_EMBEDDINGS = ("aten.embedding.default", "et_vk.embedding_q4gsw.default", "pteron.embedding_q8gsw.default")


class ImagePrefill:
    """Runs the chunks of any sequence of a model. `token` is the id of the token that the
    checkpoint's prompts have for a row of an image."""

    def __init__(self, model: LanguageModel, processor: ImageProcessor, token: int) -> None:
        name = model.program.file.name
        if IMAGE not in model.program or model.delegate is None:
            raise UnsupportedError(f"{name}: the program has no method {IMAGE}, which reads images")
        self.processor, self.token = processor, token
        self._device, self._program = model.device, model.program
        self._method_name = model.method.name
        self._graph: DerivedGraph | None = None  # made at the first use: many conversations have no images

    def submit(
        self,
        sequence: LanguageModel,
        user: object,
        ids: list[int],
        runs: Sequence[Run],
        tiles: Sequence[GpuTensor],
    ) -> int:
        """Submit a chunk from the sequence's position on, without logits. Its rows of images are those of
        `runs`, each in a tile. Returns the submission's number."""
        row_bytes = tiles[0].nbytes // self.processor.tiles.rows
        with self._device.lock:
            sequence.check_user(user)
            rows = self._device.create_buffer(len(ids) * row_bytes, "rows of images")
            try:
                submit(
                    self._device,
                    [run.copy(tile, rows, row_bytes) for run, tile in zip(runs, tiles, strict=True)],
                )
                inputs = (
                    np.array([[self.token if id < 0 else id for id in ids]], np.int32),
                    np.array([sequence.position], np.int64),
                    np.array([[[id < 0] for id in ids]]),
                    View(rows, 0, (1, len(ids), tiles[0].shape[-1]), tiles[0].dtype, tiles[0].storage),
                )
                return self._graph_of(sequence).submit(sequence, ids, inputs)
            finally:
                self._device.free(rows)  # submitted commands may still use it

    def encode(self, tile: npt.NDArray[np.uint8]) -> GpuTensor:
        """The rows of a tile, on the GPU."""
        (rows,) = self._program[IMAGE](self.processor.patches(tile), on_gpu=True)
        assert isinstance(rows, GpuTensor)
        return rows

    def close(self) -> None:
        if self._graph is not None:
            with self._device.lock:
                self._graph.close()

    def _graph_of(self, sequence: LanguageModel) -> DerivedGraph:
        if self._graph is None:
            (graph,) = self._program.graphs(self._method_name)
            self._graph = DerivedGraph(sequence, with_image_rows(graph), ids_of(graph))
        return self._graph


class RequestImages:
    """The images of one request, with the tiles that its prompt has not passed yet."""

    def __init__(self, prefill: ImagePrefill, images: Sequence[PromptImage]) -> None:
        self._prefill = prefill
        self._images = {image.key: image for image in images}
        self._encoded: dict[tuple[int, int], GpuTensor] = {}

    def submit(self, sequence: LanguageModel, user: object, ids: list[int]) -> int:
        """Submit a chunk of the prompt (`ImagePrefill.submit`)."""
        runs = list(_runs(ids, self._prefill.processor.tiles.rows))
        tiles = [self._tile(run.key, run.tile) for run in runs]  # before the device's lock is taken
        # The next chunk may have more rows of the last tile.
        last = (runs[-1].key, runs[-1].tile)
        self._encoded = {last: tiles[-1]}
        return self._prefill.submit(sequence, user, ids, runs, tiles)

    def _tile(self, key: int, tile: int) -> GpuTensor:
        """The rows of a tile, computed at the first use."""
        if (key, tile) not in self._encoded:
            self._encoded[key, tile] = self._prefill.encode(self._images[key].tiles[tile])
        return self._encoded[key, tile]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one tile that follow one another in a chunk."""

    key: int  # of the image
    tile: int
    row: int  # of the tile, the first
    column: int  # of the chunk, the first
    count: int

    def copy(self, tile: GpuTensor, target: Buffer, row_bytes: int) -> Copy:
        size, to, start = (rows * row_bytes for rows in (self.count, self.column, self.row))
        return Copy(tile.buffer, target, size, to, start)


def _runs(ids: Sequence[int], rows: int) -> Iterator[Run]:
    start = 0
    while start < len(ids):
        if ids[start] >= 0:
            start += 1
            continue
        key, first = key_and_row(ids[start])
        end = start + 1
        while end < len(ids) and (first + end - start) % rows and ids[end] == ids[start] - (end - start):
            end += 1
        yield Run(key, first // rows, first % rows, start, end - start)
        start = end


def with_image_rows(graph: Graph) -> Graph:
    """A graph (tokens, position) -> logits with two more inputs: which tokens are rows of images [1, tokens,
    1], and these rows [1, tokens, dim]."""
    tokens = graph.inputs[0]
    found = [node for node in graph.nodes if node.name in _EMBEDDINGS and tokens in node.args]
    if len(found) != 1:
        raise UnsupportedError(f"{graph.name} has {len(found)} embeddings of its tokens; images need one")
    (node,) = found
    new = count(max(ids_of(graph)) + 1)
    out = node.args[-1]
    assert isinstance(out, Tensor)
    text, rows = (Tensor(next(new), out.dtype, out.shape_max) for _ in range(2))
    is_image = Tensor(next(new), DType.BOOL, (*out.shape_max[:-1], 1))
    embedded = Node(node.index, node.name, (*node.args[:-1], text))
    chosen = Node(node.index, "aten.where.self", (is_image, rows, text, out))
    at = graph.nodes.index(node)
    nodes = (*graph.nodes[:at], embedded, chosen, *graph.nodes[at + 1 :])
    name = f"{graph.name} with images"
    return replace(graph, name=name, nodes=nodes, inputs=(*graph.inputs, is_image, rows), is_internal=True)
