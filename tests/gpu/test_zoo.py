"""Small architectures of docs/models.md through `pteron.compile`: right, and whole on the GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("executorch")

from zoo.measure import measure
from zoo.networks import MODELS

pytestmark = pytest.mark.export
WHOLE = (
    "text_cnn",
    "gcn",
    "dcgan",
    "gat",
    "nbeats",
    "pointnet",
    "siren",
    "dlrm",
    "dlinear",
    "tcn",
    "stylegan2",
    "capsules",
)


@pytest.mark.long(every=3)
@pytest.mark.parametrize("name", WHOLE)
def test_whole_on_the_gpu(name: str) -> None:
    result = measure(name, MODELS[name])
    assert result.is_whole, result
