"""tools/measure_io.py with programs in ncu's place: what it reads of ncu's CSV, and what it says where there is nothing to read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/measure_io.py"
if not TOOL.exists():
    pytest.skip("needs the repository", allow_module_level=True)

# As ncu prints --csv --page=raw: lines of its own and of the program, the header, units, a row a kernel.
FAKE = """#!/bin/sh
echo '==PROF== Connected to process 7'
echo 'forward:general d=64 n=512 batch=1 heads=2 tile=128x64'
echo '"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","lts__t_bytes.sum"'
echo '"","","","byte","byte","byte"'
echo '"0","7","forward_sm80","1,048,576","262,144","2,097,152.5"'
case "$*" in *once=backward*) echo '"1","7","backward_prepare","1000","10","1"'; echo '"2","7","backward_sm80","2000","20","2"';; esac
"""


def run(tmp_path, script, *flags):
    fake = tmp_path / "fake-ncu"
    fake.write_text(script)
    fake.chmod(0o755)
    return subprocess.run([sys.executable, TOOL, f"--ncu={fake}", "--program=/bin/true", "--flashtile=/no/such", "--seqlen=512",
                           "--head-dim=64", "--heads=2", "--methods=general", *flags], capture_output=True, text=True)


def test_it_adds_up_the_kernels_of_each_pass(tmp_path):
    done = run(tmp_path, FAKE, f"--json={tmp_path}/io.json")
    assert done.returncode == 0, done.stderr
    forward, backward = json.loads((tmp_path / "io.json").read_text())["rows"]
    assert (forward["dram_read"], forward["dram_write"], forward["l2"]) == (1048576, 262144, 2097152.5)
    assert forward["tile"] == "128x64" and forward["kernels"] == ["forward_sm80"]
    assert (backward["dram_read"], backward["dram_write"], backward["l2"]) == (3000, 30, 3)  # without forward's
    assert backward["kernels"] == ["backward_prepare", "backward_sm80"]
    assert "no model" in done.stdout
    # q, k, v, out of 512 x 2 x 64 bf16, and LSE: 0.504 MiB
    assert done.stdout.splitlines()[2].split() == ["general", "forward", "128x64", "1.0", "0.2", "2.0", "0.5"]


def test_the_model_counts_with_the_kernels_tile(tmp_path):
    assert run(tmp_path, FAKE, f"--json={tmp_path}/io.json").returncode == 0
    model = tmp_path / "flashtile"
    model.write_text(f"""#!{sys.executable}
import json, sys
flags = dict(a.lstrip("-").split("=") for a in sys.argv[2:])
assert (flags["algorithm"], flags["tile"], flags["heads"], flags["dtype"]) == ("flash2", "128,64", "2", "bf16"), flags
json.dump({{"rows": [{{"counted_bytes": 3 * 2**20 if flags["pass"] == "forward" else 2**20}}]}}, open(flags["json"], "w"))
""")
    model.chmod(0o755)
    done = subprocess.run([sys.executable, TOOL, f"--read={tmp_path}/io.json", f"--flashtile={model}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()[2:]] == ["3.0", "1.0"]


@pytest.mark.parametrize("script, says", [
    ("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1\n", "may not read the GPU's counters"),
    ("#!/bin/sh\necho '==ERROR== no device'; exit 3\n", "ncu ended with 3 and 0 kernels: ==ERROR== no device"),
    ("#!/bin/sh\n", "ncu ended with 0 and 0 kernels: it said nothing"),
])
def test_it_says_why_there_is_nothing_to_show(tmp_path, script, says):
    done = run(tmp_path, script)
    assert done.returncode == 1 and says in done.stderr


def test_it_says_where_it_looked_for_ncu(tmp_path):
    done = subprocess.run([sys.executable, TOOL, "--ncu=/no/such/ncu", "--program=/bin/true"], capture_output=True, text=True)
    assert done.returncode == 1 and "Nsight Compute is not here: no /no/such/ncu; --ncu=PROGRAM" in done.stderr
