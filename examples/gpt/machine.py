"""What a result was measured on, and by which command."""

import datetime
import os
import sys

import torch

import flashtile


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        facts = dict(line.split(":", 1) for line in file if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return f"{facts.get('model name', 'CPU')}, family {facts.get('cpu family', 'unknown')}"


def machine(device):
    return {"device": torch.cuda.get_device_name() if device == "cuda" else cpu(),
            "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads(), "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "flashtile": flashtile.__version__,
            "command": " ".join(sys.argv),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds")}
