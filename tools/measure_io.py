#!/usr/bin/env python3
"""What attention's kernels move on this machine's GPU, read by NVIDIA Nsight Compute (ncu) from the GPU's counters, beside what
`flashtile io` counts.

    tools/measure_io.py --seqlen=4096 --head-dim=128 --heads=16              of `build/flashtile` or the flashtile in PATH
    tools/measure_io.py --program=PACKED/flashtile_bench_baselines --json=io.json      from a packed build (tools/gpu-check)
    tools/measure_io.py --read=io.json                                       the table again, here with the model

DRAM and L2 are bytes that all kernels of a pass read and write there; ncu empties the caches before each kernel. The model counts
what an algorithm's blocks load and store, with the kernel's own Br and Bc: on a GPU most of that comes from L2, and "once" is every
input read and every output written one time, which no kernel can go below in DRAM unless L2 holds what it has.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

METRICS = {"dram_read": "dram__bytes_read.sum", "dram_write": "dram__bytes_write.sum", "l2": "lts__t_bytes.sum"}
# method: the algorithm of `flashtile io` that it is
METHODS = {"standard": "standard", "fa1": "flash1", "general": "flash2", "flashtile": "flash2"}
NO_PERMISSION = "ERR_NVGPUCTRPERM"


class Failure(Exception):
    """Why there is nothing to show."""


def find_ncu(named):
    places = [named] if named else ["ncu", "/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu"]
    for place in places:
        if found := shutil.which(place):
            return found
    raise Failure(f"NVIDIA Nsight Compute is not here: no {', '.join(places)}; --ncu=PROGRAM says where it is")


def find_flashtile(named):
    build = Path(__file__).resolve().parents[1] / "build/flashtile"
    return shutil.which(named) if named else str(build) if build.exists() else shutil.which("flashtile")


def kernels_of(output):
    """(name, {metric: bytes}) of each kernel in the CSV that ncu prints among other lines."""
    lines = output.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    number = lambda text: float(text.replace(",", ""))
    return [(row["Kernel Name"], {name: number(row[metric]) for name, metric in METRICS.items()})
            for row in rows if row["ID"]]  # the row of units has none


def profiled(ncu, command):
    done = subprocess.run([ncu, "--csv", "--page=raw", "--print-units=base", "--target-processes=all",
                           f"--metrics={','.join(METRICS.values())}", *command], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if NO_PERMISSION in said:
        raise Failure(f"this user may not read the GPU's counters ({NO_PERMISSION}): run as root, in a container with "
                      "--cap-add=SYS_ADMIN, or have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0")
    kernels = kernels_of(done.stdout)
    if done.returncode != 0 or not kernels:
        last = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
        raise Failure(f"ncu ended with {done.returncode} and {len(kernels)} kernels: {last[-1][:300]}")
    tile = next((line.rpartition("tile=")[2] for line in done.stdout.splitlines() if "tile=" in line), "")
    return kernels, tile


def total(kernels):
    return {name: sum(moved[name] for _, moved in kernels) for name in METRICS}


def measured(ncu, program, shape, method):
    """A row for each pass: backward's kernels are those that come after forward's."""
    flags = [f"--{name}={value}" for name, value in shape.items()]
    forward, tile = profiled(ncu, [*program, *flags, f"--once=forward:{method}"])
    rows = [{"method": method, "pass": "forward", "tile": tile, "kernels": [name for name, _ in forward], **total(forward)}]
    both, tile = profiled(ncu, [*program, *flags, f"--once=backward:{method}"])
    backward = both[len(forward):]
    rows.append({"method": method, "pass": "backward", "tile": tile, "kernels": [name for name, _ in backward], **total(backward)})
    return rows


def once_bytes(row, shape):
    """Every input read and every output written, 16 bits an element; LSE in fp32."""
    matrix = 2 * shape["seqlen"] * shape["heads"] * shape["head-dim"] * max(1, shape["tokens"] // shape["seqlen"])
    lse = matrix // shape["head-dim"] * 2
    return 4 * matrix + lse if row["pass"] == "forward" else 8 * matrix + lse  # q, k, v, o; and dO, dQ, dK, dV


def model_bytes(flashtile, row, shape):
    if not flashtile:
        return None
    batch = max(1, shape["tokens"] // shape["seqlen"])
    command = [flashtile, "io", f"--pass={row['pass']}", f"--algorithm={METHODS[row['method']]}", f"--seqlen={shape['seqlen']}",
               f"--head-dim={shape['head-dim']}", f"--heads={shape['heads'] * batch}", "--dtype=bf16"]
    if shape["causal"]:
        command.append("--causal")
    if row["tile"]:
        command.append(f"--tile={row['tile'].replace('x', ',')}")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([*command, f"--json={file.name}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[:300]}")
        return json.loads(Path(file.name).read_text(encoding="utf-8"))["rows"][0]["counted_bytes"]


def table(result, flashtile):
    shape = result["shape"]
    mib = lambda value: "" if value is None else f"{value / 2**20:10.1f}"
    lines = [f"{result['shape']}, MiB", f"{'':10} {'':9} {'tile':>9} {'DRAM read':>10} {'DRAM write':>10} {'L2':>10} {'once':>10} {'model':>10}"]
    for row in result["rows"]:
        cells = (row["dram_read"], row["dram_write"], row["l2"], once_bytes(row, shape), model_bytes(flashtile, row, shape))
        lines.append(f"{row['method']:10} {row['pass']:9} {row['tile']:>9} " + " ".join(map(mib, cells)))
    if not flashtile:
        lines.append("no model: there is no flashtile here; --read shows the file elsewhere")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=int, default=4096)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--tokens", type=int, help="in all; default: one sequence")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--methods", default=",".join(METHODS), help="of standard, fa1, general, flashtile")
    parser.add_argument("--program", help="flashtile_bench_baselines of a packed build; default: flashtile's own")
    parser.add_argument("--flashtile", help="the command line, for the model and where --program is not given")
    parser.add_argument("--ncu", help="Nsight Compute's command line")
    parser.add_argument("--json", help="write what was measured to this file")
    parser.add_argument("--read", help="show such a file and measure nothing")
    arguments = parser.parse_args()
    flashtile = find_flashtile(arguments.flashtile)
    try:
        if arguments.read:
            result = json.loads(Path(arguments.read).read_text(encoding="utf-8"))
        else:
            program = [arguments.program] if arguments.program else [flashtile, "bench", "baselines", "--device=cuda"]
            if None in program:
                raise Failure("there is no flashtile in build/ or PATH; --flashtile or --program says where it is")
            ncu = find_ncu(arguments.ncu)
            shape = {"seqlen": arguments.seqlen, "head-dim": arguments.head_dim, "heads": arguments.heads,
                     "tokens": arguments.tokens or arguments.seqlen, "causal": int(arguments.causal)}
            rows = [row for method in arguments.methods.split(",") for row in measured(ncu, program, shape, method)]
            result = {"shape": shape, "rows": rows}
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
        print(table(result, flashtile))
    except Failure as failure:
        sys.exit(f"measure_io.py: {failure}")


if __name__ == "__main__":
    main()
