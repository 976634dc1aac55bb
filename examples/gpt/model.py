"""A GPT as GPT-2 and GPT-3 are: learned positions, LayerNorm before attention and MLP, GELU, weights shared by the
token embedding and the last layer."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Size(NamedTuple):
    layers: int
    width: int
    heads: int


# Table 1 of the FlashAttention-2 paper trains GPT3-1.3B and 2.7B. GPT-3's own table gives 2.7B 32 heads of 80, and 1.3B
# 24 heads of 128, which width 2048 does not hold; with heads of 128 they are 20 and 16.
SIZES = {"1.3b": Size(24, 2048, 16), "2.7b": Size(32, 2560, 20)}
VOCABULARY = 50304  # GPT-2's 50257, padded to a multiple of 64


class Block(nn.Module):
    def __init__(self, size, dropout, attention):
        super().__init__()
        width = size.width
        self.heads, self.dropout, self.attention = size.heads, dropout, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        dropout = self.dropout if self.training else 0.0
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        x = x + F.dropout(self.out(self.attention(q, k, v, dropout).flatten(-2)), dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), dropout)


class Gpt(nn.Module):
    def __init__(self, size, context, vocabulary, attention, dropout=0.0):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, size.width), nn.Embedding(context, size.width)
        self.blocks = nn.ModuleList(Block(size, dropout, attention) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * size.layers) if last else 0.02)

    def forward(self, ids, places=None):
        """places: of the ids in the sequence; without them, the ids are its start."""
        x = self.token(ids) + (self.position.weight[: ids.shape[1]] if places is None else self.position(places))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


def loss_of(model, ids, target, places=None):
    """In fp32, whatever the model computes in."""
    return F.cross_entropy(model(ids, places).float().flatten(0, 1), target.flatten())


def flops(size, parameters, seqlen):
    """Of a training step on one sequence, by the formula of the FlashAttention-2 paper, section 4.3. The second term is
    attention, not halved for the causal mask."""
    return 6 * seqlen * parameters + 12 * size.layers * size.width * seqlen**2
