"""What several networks are made of."""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Attention(nn.Module):
    """Self-attention over rows; the mask is added to the scores."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, rows, width = x.shape

        def split(y):
            return y.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)

        y = scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)), attn_mask=mask
        )
        return self.out(y.transpose(1, 2).reshape(batch, rows, width))


class Encoder(nn.Module):
    """A transformer block with its norms before attention and perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.shrink(gelu(self.grow(self.norm_mlp(x))))
