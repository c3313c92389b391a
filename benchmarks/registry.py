"""The benchmarks, in the order in which they run and stand in RESULTS.md."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One benchmark: its name on the command line, its heading, and its script (see :mod:`benchmark`)."""

    name: str
    title: str
    script: str


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("agent-ready", "Time until a guest's agent is ready", "agent_ready.py"),
    Benchmark("image", "The image that boots anywhere: build time and size", "image.py"),
    Benchmark("bare-root", "The first run on a bare machine, step by step", "bare_root.py"),
    Benchmark("overhead-share", "Share of a run that is not measurement", "overhead_share.py"),
    Benchmark("noisy-neighbour", "Trials lost beside a neighbour that burns CPU time in bursts", "noisy_neighbour.py"),
    Benchmark("memory-flat", "Peak memory by number of samples", "memory_flat.py"),
    Benchmark("hptime-clock", "Cost and error of the clock", "hptime_clock.py"),
    Benchmark("hptime-sleep", "Lateness and CPU use of the sleep", "hptime_sleep.py"),
    Benchmark("realtime-agreement", "Cycles and stalls beside cyclictest, oslat and rtla", "realtime_agreement.py"),
    Benchmark("injected-spikes", "Cycles made late on purpose, and the causes that are named", "injected_spikes.py"),
    Benchmark("shim-throughput", "A probe loop through the shim against without it", "shim_throughput.py"),
    Benchmark("forwarding-search", "Searching the no-drop rate in sixty cells", "forwarding_search.py"),
    Benchmark("forwarding-lab", "Set-up and teardown of forwarding laboratories", "forwarding_lab.py"),
    Benchmark("serve-cost", "What an open page of `virtgauge serve` costs beside a run", "serve_cost.py"),
    Benchmark("report-time", "Time, memory and size of a report by number of trials", "report_time.py"),
    Benchmark("verdict-time", "Time of a verdict over 100,000 trials", "verdict_time.py"),
    Benchmark("archive-queries", "Questions to an archive of runs beside reading their ledgers", "archive_queries.py"),
    Benchmark("decided-verdict", "Repetitions until a verdict is decided", "decided_verdict.py"),
    Benchmark("kernels-peers", "The isolation suite's kernels beside their peers", "kernels_peers.py"),
    Benchmark("kernels-repeatability", "Repeatability of the isolation suite's kernels", "kernels_repeatability.py"),
    Benchmark(
        "isolation-controller", "The controller's own CPU time beside isolation trials", "isolation_controller.py"
    ),
    Benchmark("packets-ports", "Frames a second by each port, and the tester's own error", "packets_ports.py"),
    Benchmark("pacing-sweep", "The highest rate that each way of sending paces", "pacing_sweep.py"),
    Benchmark("bandwidth-accuracy", "Estimates of available bandwidth on a shaped path", "bandwidth_accuracy.py"),
    Benchmark("storage-pgbench", "Our client on PostgreSQL beside pgbench", "storage_pgbench.py"),
    Benchmark("storage-ycsb", "Our client on MongoDB and Cassandra beside go-ycsb", "storage_ycsb.py"),
    Benchmark("storage-writes", "A thousand readings in one statement", "storage_writes.py"),
    Benchmark("storage-growth", "Cost of an operation by what is stored", "storage_growth.py"),
    Benchmark("fleet-overhead", "What a fleet adds to every trial", "fleet_overhead.py"),
    Benchmark("fleet-scale", "What coordinating 200 hosts costs", "fleet_scale.py"),
    Benchmark("fleet-disturbance", "An idle worker beside a timing trial", "fleet_disturbance.py"),
)
