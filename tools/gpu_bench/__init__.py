"""The benchmark on a GPU, tools/gpu_bench.py. problem.py has a problem's inputs, methods.py the implementations that
are compared, check.py tests their results and errors.py measures how exact they are. machine.py and timing.py measure
times. The works are in speeds.py, slowdowns.py and costs.py; run.py is what they share, and summary.py compares their
results with the floors."""
