"""tools/plot_paper.py and tools/paper_page.py: sums, ratios, and a page from results of two points."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
TOOLS = Path(__file__).resolve().parents[2] / "tools"
if not TOOLS.is_dir():
    pytest.skip("needs the repository", allow_module_level=True)
sys.path.insert(0, str(TOOLS))

import paper_page  # noqa: E402
import plot_paper  # noqa: E402


def row(passes, ms, gflops, share, causal=False, method="flashtile", dtype="fp32"):
    return {"pass": passes, "ms": ms, "gflops": gflops, "ceiling_share": share, "method": method, "dtype": dtype, "head_dim": 64,
            "causal": causal, "seqlen": 512, "batch": 1, "heads": 4, "kv_heads": 4, "threads": 2}


GRID = [row("forward", 1.0, 200.0, 0.5), row("backward", 3.0, 500.0 / 3, 0.25), row("forward", 0.5, 200.0, 0.5, causal=True),
        row("forward", 4.0, 50.0, 0.1, method="standard")]


def test_both_is_the_sum_of_two_passes_at_one_point():
    [both] = [r for r in plot_paper.with_both(GRID) if r["pass"] == "both"]
    assert both["ms"] == 4.0
    assert both["gflops"] == pytest.approx(700.0 / 4)  # 200 and 500 MFLOP
    # At a ceiling of 400 and of 667 GFLOP/s they would take 0.5 and 0.75 ms.
    assert both["ceiling_share"] == pytest.approx(1.25 / 4)


def test_a_causal_mask_gains_where_both_were_measured():
    assert plot_paper.causal_gains(GRID) == [("forward", "fp32", 64, "flashtile", 512, 2.0)]


def test_figures_have_their_pass_and_type():
    grid = GRID + [row(p, 1.0, 1.0, 0.1, dtype="bf16") for p in ("forward", "backward")]
    shown = {number: {(r["pass"], r["dtype"]) for r in rows} for number, rows in plot_paper.figures_of_speed({"grid": grid, "machine": {}})}
    assert shown == {4: {("both", "fp32")}, 5: {("forward", "fp32")}, 6: {("backward", "fp32")}, 7: {("both", "bf16")}}


def test_the_page_holds_its_pictures_and_says_what_was_left_out(tmp_path):
    result = {
        "grid": GRID[:1] + GRID[3:], "lengths": [], "gpt2": [row("both", 4.0, 100.0, 0.2), row("both", 8.0, 50.0, 0.2, method="flash1")],
        "memory": [], "blocks": [], "traffic": [{"algorithm": "flash1", "counted_bytes": 12_300_000.0}], "left_out": ["a < b"], "repeats": 5,
        "machine": {"cpu": "a CPU", "flashtile": "0.1.0", "cores": 2, "date": "today", "command": "bench", "openvino": "2026.4"},
    }
    drawn = plot_paper.draw_all(result, tmp_path)
    assert drawn == ["figure5"] and (tmp_path / "figure5.png").exists()
    page = paper_page.write(result, dict(plot_paper.figures_of_speed(result)), [], plot_paper.both(result["gpt2"]), {}, tmp_path, drawn)
    assert re.findall("<img alt=\"(.*?)\" src=\"(data:image/png;base64),", page) == [("figure5", "data:image/png;base64")]
    assert "<li>a &lt; b</li>" in page and ", openvino 2026.4" in page
    assert "<td>4.00 to 4.00, mean 4.00</td>" in page  # 4 ms beside 1
    assert "<td>12.3</td>" in page
    assert not re.search("(src|href)=\"(?!data:|https://arxiv.org|results.json)", page)


def test_sparsity_adds_up_the_passes_and_says_what_lists_gain(tmp_path):
    result = {"sparsity": [{"method": "flashtile", "share": share, "pass": p, "ms": ms} for share, p, ms in
                           ((0.25, "forward", 1.0), (0.25, "backward", 2.0), (1.0, "forward", 4.0), (1.0, "backward", 6.5))],
              "sparsity_point": "n=4096", "grid": [], "blocks": [], "lengths": [], "traffic": [], "left_out": [], "repeats": 5,
              "machine": {"cpu": "a CPU", "flashtile": "0.1.0", "cores": 2, "date": "today", "command": "bench"}}
    times = plot_paper.sparsity_times(result)
    assert times == {"flashtile": {0.25: 3.0, 1.0: 10.5}}
    drawn = plot_paper.draw_all(result, tmp_path)
    assert drawn == ["sparsity"]
    page = paper_page.write(result, {}, [], [], times, tmp_path, drawn)
    assert "<td>25%</td><td>3</td><td>3.50</td><td>4.00</td>" in page


def gpu_row(passes, ms, method, **others):
    fields = {"tflops": 4.0 / ms, "regime": "in turns", "ceiling_share": None, "dtype": "bf16"}
    taken = {name: value for name, value in row(passes, ms, 0.0, None, method=method).items() if name not in ("gflops", "threads")}
    return taken | fields | others


def test_a_gpus_figure_7_is_what_hopper_adds():
    grid = [gpu_row(p, 1.0, m) for p in ("forward", "backward") for m in ("cuda_standard", "cuda_general", "flashtile")]
    shown = lambda machine: {number: {r["method"] for r in rows} for number, rows
                             in plot_paper.figures_of_speed({"grid": grid, "machine": machine})}
    assert shown({"gpu": "H200", "architecture": 90})[7] == {"cuda_general", "flashtile"}
    assert 7 not in shown({"gpu": "A100", "architecture": 80})
    [both] = [r for r in plot_paper.both(grid) if r["method"] == "flashtile"]
    assert (both["ms"], both["tflops"], both["ceiling_share"]) == (2.0, 4.0, None)


def test_pytorchs_process_joins_the_grid_and_says_how_flashtile_did_there(tmp_path):
    result = {"grid": [gpu_row("forward", 2.0, "flashtile"), gpu_row("forward", 4.0, "cuda_general")], "lengths": [], "gpt2": [],
              "memory": [], "traffic": [], "left_out": [], "repeats": 5, "own_blocks": {"Br": 128, "Bc": 80, "ms": 1.0},
              "blocks": [{"algorithm": "cuda_general", "Br": 64, "Bc": Bc, "ms": 1.0 / Bc} for Bc in (64, 128)], "blocks_point": "n",
              "machine": {"gpu": "H200", "architecture": 90, "flashtile": "0.1.0", "date": "today", "command": "bench"}}
    of_torch = {"machine": {"torch": "2.11"}, "left_out": [{"method": "torch_standard", "seqlen": 512, "reason": "out of memory"}],
                "rows": [gpu_row("forward", ms, method, regime=regime) for ms, method, regime in
                         ((1.0, "flashtile", "burst"), (3.0, "flashtile", "sustained"), (5.0, "torch_flash", "sustained"))]}
    plot_paper.add_torch(result, of_torch)
    assert result["same_in_both"] == pytest.approx(1.5)
    assert [(r["method"], r["ms"]) for r in result["grid"]] == [("flashtile", 2.0), ("cuda_general", 4.0), ("torch_flash", 5.0)]
    drawn = plot_paper.draw_all(result, tmp_path)
    assert drawn == ["figure5", "blocks"]
    page = paper_page.write(result, dict(plot_paper.figures_of_speed(result)), [], [], {}, tmp_path, drawn)
    assert "torch.json: torch_standard n=512: out of memory" in page and "took 1.50 times the time" in page
    assert "<td>64 x 128</td>" in page and "torch 2.11" in page
    assert "<td>2.50 to 2.50, mean 2.50</td>" in page  # PyTorch's 5 ms beside 2
