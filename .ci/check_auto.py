"""check_auto.py AUTO.json: the quick start planned, simulated, trained and reported.
check_auto.py --report AUTO.json FOLDER: prints the report's absolute path; FOLDER is where the command ran."""

import sys
from pathlib import Path

from contract import answer, fail, has, positive

STEPS = 60
RANKS = 4
# Nats per token that the loss must fall by, first step to last.
FALL = 1.0


def report(a, folder):
    path = Path(folder, a["report"]).resolve()
    if not path.is_file():
        fail(f"the report {path} does not exist")
    return path


def check(path):
    a = answer(path)
    has(a, "auto", "plan", "simulate", "run", "report")
    plan, run = a["plan"], a["run"]
    if plan["status"] != "ok":
        fail(f"the quick start has no plan: {plan.get('why')}")
    mesh = plan["mesh"]
    ranks = mesh["dp"] * mesh["fsdp"] * mesh["tp"] * mesh["cp"] * mesh["pp"]
    if ranks != RANKS:
        fail(f"a mesh of {ranks} ranks where {RANKS} were asked for: {mesh}")
    positive(a["simulate"]["step_time_s"], "simulate.step_time_s")
    has(run, "run", "losses", "step_time_s", "peak_memory_bytes", "weights_hash")
    losses = run["losses"]
    if len(losses) != STEPS:
        fail(f"{len(losses)} losses of {STEPS} steps")
    for loss in losses:
        positive(loss, "run.losses")
    # A byte that could be anything costs ln 256 = 5.55 nats; training starts near that.
    if not 5.0 < losses[0] < 6.5:
        fail(f"the first loss is {losses[0]}, not near ln 256 = 5.55")
    if losses[0] - losses[-1] < FALL:
        fail(f"the loss fell from {losses[0]:.3f} to {losses[-1]:.3f} only")
    has(run["step_time_s"], "run.step_time_s", "measured", "predicted", "error")
    measured = positive(run["step_time_s"]["measured"], "run.step_time_s.measured")
    predicted = positive(run["step_time_s"]["predicted"], "run.step_time_s.predicted")
    used, planned = run["peak_memory_bytes"]["measured"], run["peak_memory_bytes"]["predicted"]
    if len(used) != mesh["pp"] or len(planned) != mesh["pp"]:
        fail(f"peaks {used} and {planned} of {mesh['pp']} stages")
    if any(u > p for u, p in zip(used, planned)):
        fail(f"measured peaks {used} exceed planned ones {planned}")
    report(a, ".")
    degrees = " ".join(f"{k}={v}" for k, v in mesh.items())
    print(f"plan: {degrees}, {plan['schedule']}")
    print(f"loss: {losses[0]:.3f} to {losses[-1]:.3f} nats in {STEPS} steps")
    print(f"step: measured {measured * 1e3:.1f} ms, predicted {predicted * 1e3:.1f} ms")
    print(f"peak memory: measured {used}, predicted {planned}")


if sys.argv[1] == "--report":
    print(report(answer(sys.argv[2]), sys.argv[3]))
else:
    check(sys.argv[1])
