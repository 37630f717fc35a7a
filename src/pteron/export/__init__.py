"""PyTorch modules: exported, lowered, cached on disk, run on the GPU. Needs the extra `export`.

    compiled = pteron.compile(model, (x,))
    y = compiled(x)

In: a module and example inputs. Out: a callable with the module's signature. `torch.compile(model,
backend="pteron")` uses the same path.
"""

from pteron.export.compiled import CompiledModule
from pteron.export.compiling import compile

__all__ = ["CompiledModule", "compile"]
