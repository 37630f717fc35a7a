"""Records -> graph: the values and nodes of a delegate, checked."""

from pteron.graph.build import build
from pteron.graph.values import Constant, Graph, Node, Shape, SymInt, Tensor, Value, ValueList

__all__ = ["Constant", "Graph", "Node", "Shape", "SymInt", "Tensor", "Value", "ValueList", "build"]
