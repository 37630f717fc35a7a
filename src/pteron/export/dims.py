"""Dynamic dims: the user's names for them, expressions of them, and the operators that restrict them.

An expression is a text, such as `rows` or `2*rows + 1`. Names are those of `torch.export.Dim`; a dim without
one is named after its first place among the inputs, as `x_dim_0`.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_EXPRESSION_MAX = 200  # characters
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class DimNames:
    """Names for the symbols of an exported program."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        """`inputs` are fake tensors by name."""
        self._names: dict[Any, str] = {}
        places = [
            (size, f"{name}_dim_{dim}")
            for name, value in inputs.items()
            for dim, size in enumerate(getattr(value, "shape", ()))
            if not isinstance(size, int)
        ]
        for size, _ in places:
            env = size.node.shape_env
            for source, symbol in env.source_to_var.items():
                name = env.source_name_to_debug_name.get(source, source)
                if name.isidentifier():
                    self._names.setdefault(symbol, name)
        for size, place in places:
            if size.node.expr.is_Symbol:
                self._names.setdefault(size.node.expr, place)

    def expression(self, size: Any) -> int | str:
        """A size, a SymInt or a symbolic expression, in these names."""
        from sympy import Symbol  # type: ignore[import-untyped]

        if isinstance(size, int):
            return size
        expression = size.node.expr if hasattr(size, "node") else size
        if expression.is_Integer:
            return int(expression)
        named = {symbol: Symbol(name) for symbol, name in self._names.items()}
        return str(expression.xreplace(named))


def evaluate(expression: str, sizes: Mapping[str, int]) -> int | None:
    """The value of an expression; None if it needs an unknown size or anything but + - * //."""
    if len(expression) > _EXPRESSION_MAX:
        return None
    try:
        return _value(ast.parse(expression, mode="eval").body, sizes)
    except (SyntaxError, ValueError, LookupError, ZeroDivisionError):
        return None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return sizes[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, sizes)
        case ast.BinOp(left, action, right):
            return _OPERATORS[type(action)](_value(left, sizes), _value(right, sizes))
    raise ValueError(f"{ast.dump(node)} in the expression of a dim")


@contextmanager
def recorded_restrictions() -> Iterator[dict[Any, str]]:
    """Record which operator's tracing first restricts each symbol: PyTorch and ExecuTorch trace a program
    again when they decompose it and when they check its operators."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    causes: dict[Any, str] = {}
    update, replace = ShapeEnv._update_var_to_range, ShapeEnv._set_replacement

    def record(symbol: Any) -> None:
        if (cause := _traced_operator()) is not None:
            causes.setdefault(symbol, cause)

    def record_range(env: Any, symbol: Any, range: Any, *args: Any, **kwargs: Any) -> None:
        before = env.var_to_range.get(symbol)
        update(env, symbol, range, *args, **kwargs)
        if before is not None and env.var_to_range[symbol] != before:
            record(symbol)

    def record_replacement(env: Any, symbol: Any, *args: Any) -> None:
        replace(env, symbol, *args)
        record(symbol)

    ShapeEnv._update_var_to_range, ShapeEnv._set_replacement = record_range, record_replacement
    try:
        yield causes
    finally:
        ShapeEnv._update_var_to_range, ShapeEnv._set_replacement = update, replace


@contextmanager
def convolutions_without_guards() -> Iterator[None]:
    """Let traced convolutions restrict no dim. Each trace asks PyTorch which of its CPU kernels a convolution
    would run, and that answer depends on sizes, but the traced graph does not depend on the answer."""
    import torch
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    select = torch._C._select_conv_backend

    def select_unguarded(*args: Any, **kwargs: Any) -> Any:
        with ShapeEnv().suppress_guards():
            return select(*args, **kwargs)

    torch._C._select_conv_backend = select_unguarded
    try:
        yield
    finally:
        torch._C._select_conv_backend = select


def _traced_operator() -> str | None:
    """The operator that an interpreter of PyTorch runs on this thread."""
    from torch.fx import Interpreter

    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is Interpreter.run_node.__code__:
            return str(getattr(frame.f_locals["n"].target, "__name__", frame.f_locals["n"].target))
        frame = frame.f_back  # type: ignore[assignment]
    return None
