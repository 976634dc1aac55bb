"""The public package ring-flash-attn, which runs on flash_attn_interface's private functions, over two processes on the
CPU: out and gradients of each process' part against whole attention in fp64. Skipped where the package is not
installed."""

import importlib.util
import subprocess
import sys

import pytest
import torch

import flashtile  # noqa: F401
from oracle import dense

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ring_flash_attn") is None, reason="needs ring-flash-attn")

PROCESSES = 2
LENGTHS = (24, 40)  # of the packed sequences; each is cut into 2 x PROCESSES pieces at most
# Its adapters for transformers are for old ones, and not needed.
WORKER = """
import os, sys, types
import torch, torch.distributed as dist
import flashtile
flashtile.install_as_flash_attn()
adapters = types.ModuleType("ring_flash_attn.adapters")
adapters.__getattr__ = lambda name: None
sys.modules["ring_flash_attn.adapters"] = adapters
import ring_flash_attn

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=%d)
jobs = torch.load(f"{folder}/in{rank}.pt")
results = {}
for name, (tensors, dout, arguments, options) in jobs.items():
    leaves = [t.requires_grad_() for t in tensors]
    out = getattr(ring_flash_attn, name)(*leaves, *arguments, **options)
    out.backward(dout)
    results[name] = [out.detach(), *(leaf.grad for leaf in leaves)]
torch.save(results, f"{folder}/out{rank}.pt")
dist.barrier()
os._exit(0)  # gloo's threads may outlive the interpreter, and then end the process by std::terminate
""" % PROCESSES


def pieces(total, name):
    """The rows of a sequence that each process has."""
    if name.startswith("zigzag"):
        parts = torch.arange(total).chunk(2 * PROCESSES)
        return [torch.cat((parts[n], parts[2 * PROCESSES - 1 - n])) for n in range(PROCESSES)]
    return list(torch.arange(total).chunk(PROCESSES))


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """Of each function of the package: what whole attention says, and what the processes said, by part."""
    folder = tmp_path_factory.mktemp("ring")
    torch.manual_seed(0)
    jobs, expected = [{} for _ in range(PROCESSES)], {}
    for name in ("ring_flash_attn_func", "zigzag_ring_flash_attn_func", "ring_flash_attn_varlen_func",
                 "zigzag_ring_flash_attn_varlen_func"):
        packed = "varlen" in name
        lengths = LENGTHS if packed else (64,)
        starts = torch.tensor((0, *lengths)).cumsum(0).tolist()
        rows = [torch.cat(part) for part in zip(*([start + piece for piece in pieces(length, name)]
                                                   for start, length in zip(starts, lengths)))]
        batch, total = (1, starts[-1]) if packed else (2, 64)
        q, dout = (torch.randn(batch, total, 4, 16).bfloat16() for _ in range(2))
        k, v = (torch.randn(batch, total, 2, 16).bfloat16() for _ in range(2))
        wide = [t.double().requires_grad_() for t in (q, k, v)]
        out = torch.cat([dense(*(t[:, a:b] for t in wide), causal=True)[0] for a, b in zip(starts, starts[1:])], 1)
        out.backward(dout.double())
        expected[name] = [[t[:, part] for t in (out.detach(), *(leaf.grad for leaf in wide))] for part in rows]
        cu = torch.tensor(starts, dtype=torch.int32) // PROCESSES
        arguments = (cu, max(lengths) // PROCESSES) if packed else ()
        for job, part in zip(jobs, rows):
            given = [t[:, part] for t in (q, k, v, dout)]
            if packed:
                given = [t[0] for t in given]
            job[name] = given[:3], given[3], arguments, {"causal": True}
    for rank, job in enumerate(jobs):
        torch.save(job, folder / f"in{rank}.pt")
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(rank), str(folder)]) for rank in range(PROCESSES)]
    try:
        assert [worker.wait(120) for worker in workers] == [0] * PROCESSES
    finally:
        for worker in workers:
            worker.kill()
    return expected, [torch.load(folder / f"out{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("name", ["ring_flash_attn_func", "zigzag_ring_flash_attn_func", "ring_flash_attn_varlen_func",
                                  "zigzag_ring_flash_attn_varlen_func"])
def test_ring_is_whole_attention(computed, name):
    expected, results = computed
    for wanted, result in zip(expected[name], results):
        for want, got, what in zip(wanted, result[name], ("out", "dq", "dk", "dv")):
            # Each of two parts is rounded to bf16, and so is their sum.
            torch.testing.assert_close(got.double().view(want.shape), want, atol=0.02 * want.abs().max().item(), rtol=0,
                                       msg=lambda message, what=what: f"{what}: {message}")
