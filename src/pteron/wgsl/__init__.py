"""Compose WGSL files into kernels, and read bindings and Params from their text."""

from pteron.wgsl.module import LIVE, Binding, Field, Kernel, Kernels, Module, compose, outline

__all__ = ["LIVE", "Binding", "Field", "Kernel", "Kernels", "Module", "compose", "outline"]
