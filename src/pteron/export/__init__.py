"""PyTorch modules: exported, lowered, cached on disk, run on the GPU. Needs the extra `export`.

    compiled = pteron.compile(model, (x,))
    y = compiled(x)

In: a module and example inputs. Out: a callable with the module's signature. `torch.compile(model,
backend="pteron")` uses the same path.
"""

from pteron.export.compile_module import compile
from pteron.export.compiled import CompiledModule

__all__ = ["CompiledModule", "compile"]
