"""PyTorch modules as they are: exported, lowered, kept on disk, run on the GPU. Needs the extra `export`.

    compiled = pteron.compile(model, (x,))
    y = compiled(x)

A module and example inputs enter, a callable that stands for the module leaves. `torch.compile(model,
backend="pteron")` comes the same way.
"""

from pteron.export.compiled import CompiledModule
from pteron.export.compiling import compile

__all__ = ["CompiledModule", "compile"]
