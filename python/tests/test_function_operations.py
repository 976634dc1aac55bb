"""PyTorch's operations one by one in score functions: their values and derivatives are PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

import flashtile
from conftest import DEVICE

NUMBERS = torch.tensor([-7, -3, -1, 1, 2, 5, 9], device=DEVICE)
FLOATS = torch.tensor([-2.5, -0.75, 0.25, 1.5, 3.0], dtype=torch.float64, device=DEVICE)
HALF = torch.tensor(0.5, dtype=torch.bfloat16, device=DEVICE)
SEVEN, TRUE = torch.tensor(7, dtype=torch.int32, device=DEVICE), torch.tensor(True, device=DEVICE)
COUNTS = torch.arange(12, dtype=torch.int32, device=DEVICE).reshape(3, 4)


def written(s, b, h, i, j):
    x = s.clone()
    x += NUMBERS[i % 7]
    x *= 2
    two = torch.tensor(1.0)
    two += 1
    return x * two


# What a function may do with a score x and an int n, which is negative too.
OPERATIONS = {
    "add": lambda x, n: x + n + 2, "alpha": lambda x, n: torch.add(x, n, alpha=3), "subtract": lambda x, n: 1 - x - n,
    "multiply": lambda x, n: x * n, "divide": lambda x, n: x / n + n / 4, "reciprocal": lambda x, n: x + 3 / n,
    "floor": lambda x, n: x * (n // 2 + 7 // n), "trunc": lambda x, n: x + torch.div(n, 2, rounding_mode="trunc"),
    "floor mode": lambda x, n: x + torch.div(n, 3, rounding_mode="floor"), "remainder": lambda x, n: x + n % 3 + n % -4,
    "negate": lambda x, n: -x + -n, "absolute": lambda x, n: x.abs() + n.abs(),
    "sign": lambda x, n: x.sign() + n.sign(),
    "extremes": lambda x, n: torch.minimum(x, n) + torch.maximum(n, torch.tensor(2)) * x,
    "extremes of bools": lambda x, n: torch.where(torch.minimum(n > 1, n < 6), x, 0.0),
    "clamp": lambda x, n: x.clamp(-0.5, 1) + n.clamp(max=3) + n.clamp(min=-2),
    "clamp to floats": lambda x, n: n.clamp(-1.5, 2.5) + x,
    "relu": lambda x, n: F.relu(x), "silu": lambda x, n: F.silu(x), "where": lambda x, n: torch.where(n > 0, x, n),
    "masked_fill": lambda x, n: x.masked_fill(n > 2, 2.5),
    "comparisons": lambda x, n: torch.where((n == 2) | (n != -1) & (x < n) ^ (x >= 0.5), x, 2 * x),
    "comparisons of bools": lambda x, n: torch.where((n > 1) == (x > 0), x, 2 * x),
    "order of bools": lambda x, n: torch.where((n > 1) < (x > 0), x, 2 * x),
    "logical": lambda x, n: torch.where(torch.logical_or(torch.logical_and(n - 1, x > 0), n == 5), x, 2 * x),
    "logical_xor": lambda x, n: torch.where(torch.logical_xor(n - 1, x > 0).logical_not(), x, 2 * x),
    "bits": lambda x, n: x + (n & 6) + (n | 8) + (n ^ 3) + ~n, "not": lambda x, n: torch.where(~(n > 1), x, 2 * x),
    "shifts": lambda x, n: x + (n << 2) + (n >> 1), "sum of bools": lambda x, n: x * ((n > 1) + (n < -2)) + (n > 0) * 2,
    "exp": lambda x, n: torch.exp(x) + torch.exp2(x) + torch.exp2(-n.abs() * 0.5),
    "log": lambda x, n: torch.log(x.abs() + 1) + torch.log2(n.abs()) + torch.log10(n.abs()) + torch.log1p(n.abs()),
    "tanh": lambda x, n: torch.tanh(x), "sqrt": lambda x, n: torch.sqrt(x.abs() + 1) + torch.rsqrt(n.abs()),
    "sigmoid": lambda x, n: torch.sigmoid(x) + torch.sigmoid(40 * n), "square": lambda x, n: x.square(),
    "powers": lambda x, n: x**3 + x**5 + n**2 + (x.abs() + 1)**-2 + (x.abs() + 1)**0.5 + (x.abs() + 1)**-0.5 + x**0,
    "powers of numbers": lambda x, n: 2**n.abs() + 3.0**x + 0.5**n,
    "rounding": lambda x, n: x + torch.floor(n / 4) + torch.ceil(n / 4) + torch.trunc(n / 4) + n.floor(),
    "conversions": lambda x, n: x.float() + (n / 4).long() + n.float() + n.bool() + (n > 0).int() +
    x.double().to(torch.float32),
    "likes": lambda x, n: x + torch.zeros_like(n) + torch.ones_like(x) + torch.full_like(x, 2.5) + n.new_full((), 3),
    "new tensors": lambda x, n: x * torch.tensor(2.5) + torch.full((), 3) + torch.arange(4)[2],
    "constants": lambda x, n: x * HALF + SEVEN + torch.where(TRUE, x, 0.0) + (COUNTS * 2)[1, 2],
    "reads": lambda x, n: x + FLOATS[n % 5] + COUNTS[n % 3, n.abs() % 4],
    "from the end": lambda x, n: x + NUMBERS[n.clamp(-7, 6)] + NUMBERS[-2],
    "rows": lambda x, n: x + COUNTS[n % 3][1] + COUNTS[n % 3][n % 4] + COUNTS[n % 3, ...][-1] + COUNTS.T[n % 4, n % 3],
    "a few reads": lambda x, n: x * FLOATS.float()[NUMBERS[n % 7] % 5],
    "more new tensors than a text may name": lambda x, n: sum(map(torch.tensor, range(9)), x) + torch.full((), 3),
    "big numbers": lambda x, n: torch.where(n > 2**40, x, -(2**63)) * 1e-10 + 1e-50,
    "trivial": lambda x, n: x.expand(()).view(()).clone() + n.detach() + torch.ops.aten.alias(x),
}


def evaluated(score):
    """(score, its derivative by s) of some s and i, where the keys are one: lse is the score then, and dq the
    derivative."""
    s = torch.linspace(-3, 3.1, 7 * 40)[:, None].contiguous().requires_grad_()
    one = torch.ones(1, 1, 1, 1)
    _, lse = flashtile.attention(s[None, :, None], one, one, scale=1.0, score=score, return_lse=True)
    return lse[0, 0], *torch.autograd.grad(lse.sum(), s)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    """As PyTorch has them, and their derivatives."""
    operation = OPERATIONS[name]
    got, slope = evaluated(lambda s, b, h, i, j: operation(s, NUMBERS[i % 7]))
    s = torch.linspace(-3, 3.1, 7 * 40).requires_grad_()
    wanted = torch.stack([operation(x, NUMBERS[i % 7]) for i, x in enumerate(s)]).float()
    torch.testing.assert_close(got, wanted.detach(), atol=3e-6, rtol=3e-6)
    if wanted.requires_grad:
        torch.testing.assert_close(slope[:, 0], torch.autograd.grad(wanted.sum(), s)[0], atol=3e-6, rtol=3e-6)


def test_operations_in_place():
    got, slope = evaluated(written)
    s = torch.linspace(-3, 3.1, 7 * 40)
    torch.testing.assert_close(got, 4 * (s + NUMBERS.repeat(40)))
    assert torch.equal(slope, torch.full_like(slope, 4))
