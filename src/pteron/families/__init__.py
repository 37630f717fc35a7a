"""THE OPERATORS: one family a folder, its modules and kernels side by side.

Importing this package registers every operator that a file may call.
"""

from pteron.families.attention import sdpa
from pteron.families.create import fill
from pteron.families.elementwise import binary, gate, unary
from pteron.families.index import gather
from pteron.families.layout import pad, rearrange, views
from pteron.families.linear import product
from pteron.families.norm import norm
from pteron.families.quantized import embedding_q4, linear_q4, qparams
from pteron.families.reduce import reduce, softmax
from pteron.families.rope import rope
from pteron.families.symint import scalars

FAMILIES = (
    sdpa, fill, binary, gate, unary, gather, pad, rearrange, views, product, norm,
    embedding_q4, linear_q4, qparams, reduce, softmax, rope, scalars,
)  # fmt: skip
