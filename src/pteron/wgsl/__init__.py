"""Compose WGSL files into kernels, and read bindings and Params from their text."""

from pteron.wgsl.module import Binding, Field, Kernel, Kernels, Module, compose, outline

__all__ = ["Binding", "Field", "Kernel", "Kernels", "Module", "compose", "outline"]
