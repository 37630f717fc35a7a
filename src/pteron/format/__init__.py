"""Files enter as bytes; what they say leaves as plain records. Nothing in a file is trusted."""

from pteron.format.bundled import (
    BundledFile,
    BundledTensor,
    BundledValue,
    TestCase,
    TestSuite,
    is_bundled,
    read_bundled,
)
from pteron.format.delegate import BACKEND, read_delegate
from pteron.format.delegate_records import (
    ConstantRecord,
    DelegateGraph,
    NodeRecord,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
)
from pteron.format.program import read_program
from pteron.format.records import (
    DelegateCall,
    DelegateRecord,
    EValue,
    FreeCall,
    IndexList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    ProgramFile,
    TensorRecord,
)
from pteron.format.source import FileBytes, Source, contents, is_same, open_bytes
from pteron.format.tensor_layout import TensorLayout
from pteron.format.weights import WeightFile, load_weights, read_weights

__all__ = [
    "BACKEND",
    "BundledFile",
    "BundledTensor",
    "BundledValue",
    "ConstantRecord",
    "DelegateCall",
    "DelegateGraph",
    "DelegateRecord",
    "EValue",
    "FileBytes",
    "FreeCall",
    "IndexList",
    "Instruction",
    "JumpFalseCall",
    "KernelCall",
    "MethodRecord",
    "MoveCall",
    "NodeRecord",
    "ProgramFile",
    "Source",
    "TensorLayout",
    "TensorRecord",
    "TestCase",
    "TestSuite",
    "VkSymInt",
    "VkTensor",
    "VkValue",
    "VkValueList",
    "WeightFile",
    "contents",
    "is_bundled",
    "is_same",
    "load_weights",
    "open_bytes",
    "read_bundled",
    "read_delegate",
    "read_program",
    "read_weights",
]
