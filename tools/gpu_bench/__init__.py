"""The benchmark on a GPU, tools/gpu_bench.py: a problem (problem.py), those who solve it (methods.py), whether they are
right (check.py) and how exact (errors.py), how long they take (timing.py, on what machine.py holds), the works (speeds.py, slowdowns.py,
costs.py), which share a run.py, and what it comes to beside the floors (summary.py)."""
