"""The spectrogram of the page that listens is that of pteron.speech.spectrogram."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from node_fixtures import node

from pteron.speech import spectrogram

SCRIPT = """
const { load } = await import("./test/load.mjs");
const { logMel } = await load("sites/sound/mel.ts");
const { readFileSync } = await import("node:fs");
const { samples, bands, frames } = JSON.parse(readFileSync(process.argv[1], "utf8"));
console.log(JSON.stringify([...logMel(Float32Array.from(samples), bands, frames)]));
"""


def test_spectrograms(tmp_path: Path) -> None:
    """A rising tone with noise: as long as the frames, shorter, and silent at the end."""
    time = np.arange(16_000) / 16_000
    generator = np.random.default_rng(0)
    sound = (np.sin(2 * np.pi * 3000 * time**2) + generator.normal(size=16_000) / 50).astype(np.float32)
    for samples, bands, frames in ((sound, 80, 100), (sound[:7_777], 80, 120), (sound[:400], 13, 20)):
        given = tmp_path / "given.json"
        given.write_text(json.dumps({"samples": samples.tolist(), "bands": bands, "frames": frames}))
        found = json.loads(node("--input-type=module", "-e", SCRIPT, str(given)))
        expected = spectrogram.log_mel(samples, bands, frames)
        np.testing.assert_allclose(np.reshape(found, expected.shape), expected, atol=2e-4)
