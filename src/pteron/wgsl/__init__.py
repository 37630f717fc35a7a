"""Compose WGSL files into kernels, and read bindings and Params from their text."""

from pteron.wgsl.module import Binding, Field, Kernel, Kernels, Module, Outline, compose, outline
from pteron.wgsl.statements import Statements

__all__ = ["Binding", "Field", "Kernel", "Kernels", "Module", "Outline", "Statements", "compose", "outline"]
