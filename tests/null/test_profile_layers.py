"""The layers of a graph are found by what repeats in it."""

from __future__ import annotations

import numpy as np
import pytest
from sketch import Sketch

from pteron.graph import Graph
from pteron.tools.graph_structure import layers_of, longest_repetition


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, 0, 0)),
        ("a", (0, 0, 0)),
        ("ab", (0, 0, 0)),
        ("aa", (0, 1, 2)),
        ("abcabc", (0, 3, 2)),
        ("xabcabcabcy", (1, 3, 3)),
        ("xabababab", (1, 2, 4)),  # not twice abab
        ("eabcdabcdabn", (1, 4, 2)),  # a partial repetition does not count
        ("aabcaabcaabc", (0, 4, 3)),  # what covers more, though aa repeats sooner
    ],
)
def test_the_longest_repetition(text: str, found: tuple[int, int, int]) -> None:
    assert longest_repetition(np.array([ord(letter) for letter in text], np.int64)) == found


def network(layers: int, widths: tuple[int, ...] = (8, 8)) -> Graph:
    """An embedding, layers of products and activations, one more norm. The first layer makes something that
    all of them use, as the rotation of a transformer is."""
    sketch = Sketch()
    ids, x = sketch.tensor(1), sketch.tensor(1, 8)
    sketch.node("aten.embedding.default", sketch.constant(9, 8), ids, None, False, False, x)
    shared = None
    for _ in range(layers):
        for width in widths:
            if shared is None:
                shared = sketch.tensor(1, 8)
                sketch.node("aten.clone.default", x, None, shared)
            made, activated = sketch.tensor(1, width), sketch.tensor(1, width)
            sketch.node("aten.linear.default", x, sketch.constant(width, x.shape_max[-1]), None, made)
            sketch.node("aten.relu.default", made, activated)
            x = activated
    out = sketch.tensor(1, 8)
    sketch.node("et_vk.rms_norm.default", x, sketch.constant(8), 1e-5, out)
    return sketch.graph([ids], [out])


def test_layers_of_a_network() -> None:
    """Each is a product and its activation; what comes before the first product and from the norm on is in
    none of them."""
    graph = network(3)
    layers = layers_of(graph)
    names = {
        index: [graph.nodes[node].name for node in layers if layers[node] == index] for index in range(6)
    }
    assert names == {index: ["aten.linear.default", "aten.relu.default"] for index in range(6)}
    assert 0 not in layers
    assert graph.nodes[-1].index not in layers


def test_what_differs_in_shape_is_another_layer() -> None:
    layers = layers_of(network(3, (16, 8)))
    assert sorted(set(layers.values())) == [0, 1, 2]
    assert [list(layers.values()).count(index) for index in range(3)] == [4, 4, 4]


def test_one_layer_is_none() -> None:
    assert layers_of(network(1, (8,))) == {}
