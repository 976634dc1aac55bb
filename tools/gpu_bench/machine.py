"""Runs and times calls on a CUDA device or, for a dry run of this program, on the CPU."""

import platform
import time

import torch


class Gpu:
    """Runs and times calls on a CUDA device."""

    device = torch.device("cuda")

    def __init__(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.sm_mhz = lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            self.driver = pynvml.nvmlSystemGetDriverVersion()
        except Exception:  # then the table has no clock
            self.sm_mhz = lambda: None
            self.driver = None

    def name(self):
        return torch.cuda.get_device_name()

    def synchronize(self):
        torch.cuda.synchronize()

    def free_memory(self):
        torch.cuda.empty_cache()

    def time(self, call, count):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(400_000 * count)  # clock cycles: about 0.2 ms for each call, in which the host submits them
        start.record()
        for _ in range(count):
            call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3 / count

    @staticmethod
    def kernels(call):
        """Microseconds of each kernel of a call, in the order of their starts; None where the profiler sees none."""
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                call()
                torch.cuda.synchronize()
            events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            return [(e.name, e.time_range.elapsed_us()) for e in sorted(events, key=lambda e: e.time_range.start)]
        except Exception:  # without CUPTI
            return None

    @staticmethod
    def graph(calls):
        """All calls as one, which takes no time of the host for each."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph.replay

    @staticmethod
    def size(n):
        """The sequence length to use where a work asks for n: a dry run uses less."""
        return n


class Host:
    """Runs and times calls on the CPU."""

    device = torch.device("cpu")
    driver = None

    def name(self):
        return platform.processor() or platform.machine()

    def sm_mhz(self):
        return None

    def synchronize(self):
        pass

    def free_memory(self):
        pass

    def time(self, call, count):
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    @staticmethod
    def kernels(call):
        return None

    @staticmethod
    def graph(calls):
        def replay():
            for call in calls:
                call()
        return replay

    @staticmethod
    def size(n):
        return max(1, n // 64)
