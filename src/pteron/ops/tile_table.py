"""The tiles of products by kernel, with the figures of their time model (tiles.py), fitted on an H200:

- `matmul_*`: in the linear layers of ViT-B/16 and MiniLM, within 10 % on average
- `convolution_*`: in the layers of ResNet-18, likewise; filters by pixels. The width of a tile of matrices
  divides its workgroup. Three products of halves for one of floats take longer than tiles of floats,
  which are chosen by their number alone.
- `q4_*`: in a rotation of the kernels of Llama-3.2-1B (docs/notes/prefill-tiles.md, matrix-cores.md)
- `q4_grouped`: rows grouped by several matrices, where a smaller part of a lower tile is empty
  (docs/notes/experts.md); its figures are those of the tile of 128 rows with as many outputs"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.ops.tiles import MatrixTile, Tile

_TILES = """
kernel              tall  wide  down  across  step  products   rate  idle  resident  start
matmul_tiled           4     4     2      32    16         -   18.2  0.73         5    2.9
matmul_tiled           4     4     4      16    16         -   25.3  0.77         4    2.7
matmul_tiled           4     8     8      16    16         -   34.2  0.34         4    2.6
matmul_tiled           8     4     4      16    16         -   42.2  2.10         6    2.5
matmul_tiled           8     4     4      32    16         -   38.9  0.53         4    2.8
matmul_tiled           8     4     8      16    16         -   41.5  0.59         5    3.0
matmul_tiled           8     8     4      16    16         -   52.0  2.42         4    2.7
matmul_tiled           8     8     8      16    16         -   50.2  0.62         3    2.7
matmul_tiled           8     8    16      16    16         -   40.5  0.02         2    3.6
matmul_matrix          1     1     2       4    64         1  122.4  0.35         1    3.8
matmul_matrix          1     2     2       2    64         1  190.6  2.05         3    4.2
matmul_matrix          1     2     4       2    64         1  314.1  1.27         1    5.2
matmul_matrix          2     2     4       4    64         1  237.7  0.0          3    6.5
matmul_matrix          1     2     2       2    32         3  139.9  4.04         3    6.8
matmul_matrix          1     1     2       4    32         3   46.4  0.0          4    6.8
matmul_matrix          1     2     4       2    32         3   90.8  0.64         1    6.3
matmul_matrix          2     2     2       4    32         3   69.5  0.11         1    6.7
convolution_tiled      8     4     8      16    16         -      -     -         -      -
convolution_tiled      4     4     8       8    16         -      -     -         -      -
convolution_matrix     1     1     1       4    64         1   47.7  1.0          2    4.25
convolution_matrix     1     1     2       2    64         1   57.0  0.75         4    3.5
convolution_matrix     1     1     4       1    64         1   59.2  0.75         2    3.5
convolution_matrix     1     1     4       2    64         1   67.8  0.15         1    3.75
convolution_matrix     2     1     2       4    64         1  102.2  0.0          1    5.25
convolution_matrix     2     2     2       2    64         1  106.5  0.3          4    5.75
q4_tiled               4     4     2      32    16         -   24.7  3.82         4    6.8
q4_tiled               4     4     4      16    16         -   43.2  5.21         6    6.8
q4_tiled               4     8     8      16    16         -   62.0  2.31         2    8.6
q4_tiled               8     4     8      16    16         -   49.9  1.30         4    8.9
q4_tiled               8     8    16       8    16         -   62.0  0.96         3   15.2
q4_tiled               8     8    16      16    16         -   54.7  0.32         2   13.3
q4_grouped             8     8     8      16    16         -   62.0  0.96         3   15.2
q4_int8                4     4     2      32    32         -   60.4  3.24         4    7.5
q4_int8                4     4     4      16    32         -  110.0  5.07         6    6.2
q4_int8                8     4     4      32    32         -  110.0  1.15         2    8.1
q4_int8                8     4     8      16    32         -  101.5  0.53         3    9.0
q4_int8               16     4     8      16    32         -  106.3  0.38         2   13.2
q4_matrix              1     1     1       4    64         1   90.0  2.36         4    2.7
q4_matrix              1     2     2       2    64         1  171.4  1.53         2    4.5
q4_matrix              1     2     2       4    64         1  122.9  0.22         1    5.4
q4_matrix              2     2     2       2    64         1  323.0  3.14         2    4.2
q4_matrix              2     2     4       4    64         1  195.0  0.0          1    4.7
q4_matrix              1     2     2       4    64         3   51.0  0.0          1    3.6
q4_matrix              1     2     4       2    64         3   62.0  0.0          1    4.5
q4_matrix              2     4     4       2    32         3   94.0  0.0          1    6.0
"""


def rows_of(table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table whose first line names the columns. A dash leaves its column out."""
    names, *rows = map(str.split, table.strip().splitlines())
    for row in rows:
        yield {name: _value(word) for name, word in zip(names, row, strict=True) if word != "-"}


def _value(word: str) -> str | float:
    return word if word[0].isalpha() else float(word) if "." in word else int(word)


TILES: dict[str, tuple[Tile, ...]] = {}  # of floats, or of int8, by kernel
MATRIX_TILES: dict[str, tuple[MatrixTile, ...]] = {}
for _row in rows_of(_TILES):
    _kernel = _row.pop("kernel")
    if "products" in _row:
        # Low halves of q4_matrix have no sums of their own: with them, its error is a third, its time 1.2.
        _matrix_tile = MatrixTile(**_row, is_low_apart=_kernel != "q4_matrix")
        MATRIX_TILES[_kernel] = (*MATRIX_TILES.get(_kernel, ()), _matrix_tile)
    else:
        _tile = Tile(**_row, is_int8=_kernel == "q4_int8")
        TILES[_kernel] = (*TILES.get(_kernel, ()), _tile)
