"""The page of `flashtile bench paper`: every figure and table beside the paper's numbers (paper_texts.py), with what differs and why.
One HTML file that needs nothing else."""

import base64
import html
import math

import plot_bench
from paper_texts import BLOCKS, CAUSAL, FA1, FA2, GPT2, LENGTHS, SIZES, SPARSITY, SPEED

STYLE = """body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
img { max-width: 100% } table { border-collapse: collapse; margin: 1em 0 } h2 { margin-top: 2.5em }
th, td { border: 1px solid #ccc; padding: 3px 9px; text-align: right } th:first-child, td:first-child { text-align: left }
.paper { background: #f4f4ee; padding: .3em 1em; border-left: 4px solid #bbb }"""

def image(folder, name):
    data = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
    return f'<p><img alt="{name}" src="data:image/png;base64,{data}"></p>'


def table(header, rows):
    def cells(tag, values):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values) + "</tr>"

    return "<table>" + cells("th", header) + "".join(cells("td", row) for row in rows) + "</table>"


def section(title, parts, paper, differs):
    return "\n".join([f"<h2>{title}</h2>", *parts, f'<div class="paper"><p><b>The paper.</b> {paper}</p>'
                      f"<p><b>What differs, and why.</b> {differs}</p></div>"])


def label(method):
    return plot_bench.METHODS[method][0]


def methods_in(rows):
    return [method for method in plot_bench.METHODS if any(row["method"] == method for row in rows)]


def where(result):
    return "gpu" if "gpu" in result["machine"] else "cpu"


def summary(rows):
    """Of each method: the best speed, the best share of the ceiling, and how many times as fast flashtile is."""
    point = lambda row: tuple(row[field] for field in ("head_dim", "causal", "seqlen"))
    ours = {point(row): row["ms"] for row in rows if row["method"] == "flashtile"}
    lines = []
    for method in methods_in(rows):
        here = [row for row in rows if row["method"] == method]
        ratios = [row["ms"] / ours[point(row)] for row in here if point(row) in ours]
        compared = ratios and method != "flashtile"
        shares = [row["ceiling_share"] for row in here if row["ceiling_share"]]
        lines.append([label(method), f"{max(map(plot_bench.speed_of, here)):.0f}",
                      f"{100 * max(shares):.0f}%" if shares else "",
                      f"{min(ratios):.2f} to {max(ratios):.2f}, mean {mean(ratios):.2f}" if compared else "", len(here)])
    return table(["method", f"best {plot_bench.unit_of(rows[0])}", "best share of the ceiling", "flashtile is so many times as fast",
                  "points"], lines)


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def speed_section(number, rows, folder, drawn, device):
    what, paper, *differs = SPEED[number]
    parts = [image(folder, f"figure{number}")] if f"figure{number}" in drawn else []
    lengths = sorted({row["seqlen"] for row in rows})
    heads = ", ".join(f"{heads} of {dim}" for dim, heads in sorted({(row["head_dim"], row["heads"]) for row in rows}))
    sizes = f"Here: sequences of {lengths[0]} to {lengths[-1]}; heads: {heads}. {SIZES[device]}Speeds count the same FLOPs. "
    return section(f"Figure {number} of {FA2}: {what}", [*parts, summary(rows)], paper, sizes + differs[device == "gpu"])


def causal_section(gains, folder):
    lines = []
    for method in plot_bench.METHODS:
        here = [gain[5] for gain in gains if gain[3] == method and gain[4] == max(g[4] for g in gains if g[3] == method)]
        if here:
            longest = max(gain[4] for gain in gains if gain[3] == method)
            lines.append([label(method), longest, f"{min(here):.2f} to {max(here):.2f}"])
    return section(
        f"What a causal mask gains ({FA2}, section 3.1)",
        [image(folder, "causal"), table(["method", "longest sequence", "time without a mask / causal"], lines)], *CAUSAL)


def blocks_section(result, folder):
    best = {}
    for row in result["blocks"]:
        if row["algorithm"] not in best or row["ms"] < best[row["algorithm"]]["ms"]:
            best[row["algorithm"]] = row
    traffic = lambda row: ([f"{row['counted_bytes'] / 2**20:.1f}", f"{row['blocks_bytes'] / 1024:.0f}"] if "counted_bytes" in row
                           else ["", ""])
    lines = [[label(name), f"{row['Br']} x {row['Bc']}", f"{row['ms']:.3g}", *traffic(row)] for name, row in best.items()]
    if own := result.get("own_blocks"):
        lines.append(["flashtile, its plan", f"{own['Br']} x {own['Bc']}", f"{own['ms']:.3g}", "", ""])
    paper, differs = BLOCKS
    return section(
        f"Block sizes ({FA1}, Figure 2, middle)",
        [image(folder, "blocks"), f"<p>{html.escape(result['blocks_point'])}; the fastest blocks of each:</p>",
         table(["", "Br x Bc", "ms", "counted MiB", "KiB of fast memory"], lines)], paper, differs[where(result)])


def gpt2_section(result, rows):
    counted = {row["algorithm"]: row["counted_bytes"] for row in result["traffic"]}
    lines = [[label(row["method"]), f"{row['ms']:.2f}", f"{plot_bench.speed_of(row):.0f}",
              f"{counted[row['method']] / 1e6:.1f}" if row["method"] in counted else ""]
             for method in plot_bench.METHODS for row in rows if row["method"] == method]
    first = rows[0]
    paper, differs = GPT2
    return section(
        f"A layer of GPT-2 medium ({FA1}, Figure 2, left)",
        [table(["method", "ms, forward + backward", plot_bench.unit_of(first), "counted MB moved"], lines)], paper,
        f"Here {first['batch']} sequence{'s' if first['batch'] > 1 else ''} of {first['seqlen']} with {first['heads']} heads. "
        + differs[where(result)])


def sparsity_section(result, times, folder):
    methods = [method for method in plot_bench.METHODS if method in times]
    shares = sorted({share for of_method in times.values() for share in of_method})
    cell = lambda method, share: f"{times[method][share]:.3g}" if share in times[method] else ""
    dense = times.get("flashtile", {}).get(1.0)
    gain = lambda share: f"{dense / times['flashtile'][share]:.2f}" if dense and share in times["flashtile"] else ""
    paper, differs = SPARSITY
    return section(
        f"Block sparsity ({FA1}, Figure 2, right)",
        [image(folder, "sparsity"), f"<p>{html.escape(result['sparsity_point'])}; forward + backward, ms:</p>",
         table(["blocks that are seen", *map(label, methods), "flashtile: times as fast as with all", "1 / share"],
               [[f"{100 * share:g}%", *(cell(method, share) for method in methods), gain(share), f"{1 / share:.2f}"] for share in shares])],
        paper, differs[where(result)])


def lengths_section(result, folder):
    parts = [image(folder, "lengths")]
    memory = [row for row in result["memory"] if row["pass"] == "backward"]
    if memory:
        methods = [m for m in plot_bench.METHODS if any(f"{m}_mib" in row for row in memory)]
        value = lambda row, m: "does not fit" if row.get(f"{m}_mib") is None else f"{row[f'{m}_mib']:.1f}"
        heads = memory[0].get("heads", 1)
        parts += [f"<p>Memory of backward beyond inputs and outputs, {heads} head{'s' if heads > 1 else ''}, MiB:</p>",
                  table(["sequence length", *map(label, methods), "standard / flashtile"],
                        [[row["seqlen"], *(value(row, m) for m in methods), ratio(row)] for row in memory])]
    paper, differs = LENGTHS
    return section(f"Time and memory against length ({FA1}, Figure 3 and the memory tables)", parts, paper, differs[where(result)])


def ratio(row):
    ours, standard = row.get("flashtile_mib"), row.get("standard_mib", row.get("cuda_standard_mib"))
    return f"{standard / ours:.0f}x" if ours and standard and ours > 0 else ""


def measured_how(result):
    if where(result) == "cpu":
        return (f"Speeds are medians of at most {result['repeats']} samples, where the minutes were short of one; other programs on this "
                "machine then show. The ceiling is this machine's multiply-add peak just before and after each sample.")
    how = f"Speeds are medians of {result['repeats']} samples or more of every method in turns."
    if "same_in_both" in result:
        how += (" PyTorch's methods were measured in a process of their own (<a href=\"torch.json\">torch.json</a>, a sample each under load), in "
                f"which flashtile took {result['same_in_both']:.2f} times the time that it takes here.")
    return how


def write(result, speeds, gains, gpt2, sparsity, folder, drawn):
    machine = result["machine"]
    name = html.escape(machine.get("gpu") or machine["cpu"])
    peers = "".join(f", {name} {machine[name]}" for name in ("torch", "openvino") if name in machine)
    sections = [speed_section(number, rows, folder, drawn, where(result)) for number, rows in speeds.items()]
    if "causal" in drawn:
        sections.append(causal_section(gains, folder))
    if "blocks" in drawn:
        sections.append(blocks_section(result, folder))
    if "sparsity" in drawn:
        sections.append(sparsity_section(result, sparsity, folder))
    if gpt2:
        sections.append(gpt2_section(result, gpt2))
    if "lengths" in drawn:
        sections.append(lengths_section(result, folder))
    left_out = "".join(f"<li>{html.escape(line)}</li>" for line in result["left_out"]) or "<li>nothing</li>"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>The papers' figures on {name}</title>
<style>{STYLE}</style></head><body>
<h1>The papers' figures on {name}</h1>
<p>flashtile {machine['flashtile']}{peers}{f"; {machine['cores']} cores" if 'cores' in machine else ""}; {machine['date']}. <code>{html.escape(machine['command'])}</code></p>
<p>Every result was compared with standard attention's before its speed was taken. {measured_how(result)}
<a href="results.json">results.json</a> has every number.</p>
{"".join(sections)}
<h2>Left out</h2><ul>{left_out}</ul>
</body></html>
"""
