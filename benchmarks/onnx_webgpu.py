"""ONNX Runtime's WebGPU provider with the vision models of compiled.py, as a peer.

    python benchmarks/onnx_webgpu.py export FOLDER   writes NAME.onnx (packages onnx, onnxscript)
    python benchmarks/onnx_webgpu.py run FOLDER      (packages onnxruntime, onnxruntime-ep-webgpu)

`run` prints the time of a call, from and to NumPy, and with inputs and outputs bound beforehand, medians of
one second after a second of load; and the largest difference from float64 PyTorch. It takes `.onnx.xz` files
too.
"""

from __future__ import annotations

import argparse
import lzma
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compiled import MODELS, build, times

NAMES = ("resnet18", "mobilenet_v3_small")


def export(folder: Path) -> None:
    need("onnx", "onnxscript")
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path = str(folder / f"{name}.onnx")
        torch.onnx.export(build(name), MODELS[name][1](), path, dynamo=False, input_names=["input"])


def run(folder: Path) -> None:
    need("onnxruntime", "onnxruntime-ep-webgpu")
    import onnxruntime
    import onnxruntime_ep_webgpu as webgpu

    onnxruntime.register_execution_provider_library("webgpu", webgpu.get_library_path())
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == webgpu.get_ep_name()]
    print(f"ONNX Runtime {onnxruntime.__version__}, {len(devices)} WebGPU device(s)")
    for name in NAMES:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_provider_for_devices(devices[:1], {})
        session = onnxruntime.InferenceSession(model_bytes(folder, name), sess_options=options)
        (image,) = MODELS[name][1]()
        feeds = {"input": image.numpy()}
        expected = build(name).double()(image.double()).detach().numpy()
        (found,) = session.run(None, feeds)
        off = np.abs(found - expected).max() / np.abs(expected).max()
        call, bound = timed(partial(session.run, None, feeds)), bound_call(session, feeds)
        print(f"{name}: {1e3 * call:.3f} ms a call, {1e3 * bound:.3f} bound; {off:.1e} off")


def need(*packages: str) -> None:
    if missing := [each for each in packages if find_spec(each.replace("-", "_")) is None]:
        raise SystemExit(f"not installed: {', '.join(missing)}; pip install {' '.join(packages)}")


def timed(call: Callable[[], Any]) -> float:
    return statistics.median(times(call))


def model_bytes(folder: Path, name: str) -> bytes:
    path = folder / f"{name}.onnx"
    packed = Path(f"{path}.xz")
    if not path.exists() and not packed.exists():
        raise SystemExit(f"{path} does not exist: python benchmarks/onnx_webgpu.py export {folder}")
    return path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())


def bound_call(session: Any, feeds: dict[str, np.ndarray]) -> float:
    """Seconds of a call whose inputs and outputs are bound once."""
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output(session.get_outputs()[0].name)
    return timed(partial(session.run_with_iobinding, binding))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["export", "run"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    (export if arguments.action == "export" else run)(arguments.folder)


if __name__ == "__main__":
    main()
