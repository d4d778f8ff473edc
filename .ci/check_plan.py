"""check_plan.py FOLDER RANKS: the answers of plan, lower, simulate and report in FOLDER fit together."""

import json
import sys
from pathlib import Path

from contract import answer, fail, has, positive


def check(folder, ranks):
    plan = answer(folder / "plan.out.json")
    has(plan, "plan", "status", "mesh", "microbatch", "microbatches", "schedule", "recompute", "optimizer_sharding")
    has(plan, "plan", "step_time_s", "step_time_band_s", "tokens_per_s", "mfu", "peak_memory_bytes", "lower_bound_s")
    has(plan, "plan", "gap", "search", "timing", "alternatives", "why")
    if plan["status"] != "ok":
        fail(f"no plan fits: {plan['why']}")
    mesh = plan["mesh"]
    has(mesh, "plan.mesh", "dp", "fsdp", "tp", "sp", "cp", "ep", "etp", "pp", "vpp")
    product = mesh["dp"] * mesh["fsdp"] * mesh["tp"] * mesh["cp"] * mesh["pp"]
    if product != ranks:
        fail(f"a mesh of {product} ranks on {ranks}: {mesh}")
    if plan["microbatch"] * plan["microbatches"] * mesh["dp"] * mesh["fsdp"] != 512:
        fail(f"{plan['microbatch']} x {plan['microbatches']} micro-batches do not make 512 sequences on {mesh}")
    step = positive(plan["step_time_s"], "plan.step_time_s")
    low, high = plan["step_time_band_s"]
    if not low <= step <= high:
        fail(f"the step time {step} lies outside its band {low} to {high}")
    if not 0 < plan["lower_bound_s"] <= step * (1 + 1e-9):
        fail(f"the lower bound {plan['lower_bound_s']} is above the step time {step}")
    if not 0.05 < positive(plan["mfu"], "plan.mfu") < 1:
        fail(f"an MFU of {plan['mfu']}")
    peaks = plan["peak_memory_bytes"]
    if len(peaks) != mesh["pp"] or any(not 0 < p < 80 * 2**30 for p in peaks):
        fail(f"peaks {peaks} of {mesh['pp']} stages of 80 GiB")

    lower = answer(folder / "lower.out.json")
    has(lower, "lower", "roles", "instructions", "planned_peak_bytes")
    if not (folder / "step.program").read_text(encoding="utf-8").startswith("meshwright-program 1\n"):
        fail("step.program is no program")

    simulated = answer(folder / "simulate.out.json")
    has(simulated, "simulate", "tokens_per_s", "mfu", "bubble_fraction", "exposed_comm_fraction")
    has(simulated, "simulate", "peak_memory_bytes", "instructions", "critical_path", "timing")
    again = positive(simulated["step_time_s"], "simulate.step_time_s")
    if abs(again - step) > 1e-9 * step:
        fail(f"the plan says {step} s and its simulation {again} s")
    for key in ("bubble_fraction", "exposed_comm_fraction"):
        if not 0 <= simulated[key] < 1:
            fail(f"simulate.{key} is {simulated[key]}")

    has(answer(folder / "report.out.json"), "report", "path", "twin")
    twin = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if twin["prediction"]["step_time_s"] != step or twin["format"] != "meshwright-report":
        fail("report.json, the twin of report.html, tells of another plan")
    page = (folder / "report.html").read_text(encoding="utf-8")
    if "<script src" in page or 'src="http' in page or 'href="http' in page:
        fail("the report is not one offline page")

    degrees = " ".join(f"{k}={v}" for k, v in mesh.items())
    print(f"plan: {degrees}, micro-batch {plan['microbatch']}, {plan['schedule']}")
    print(f"step: {step:.3f} s in {low:.3f} to {high:.3f} s, bound {plan['lower_bound_s']:.3f} s, MFU {plan['mfu']:.1%}")
    print(f"memory: {max(peaks) / 2**30:.1f} GiB on the fullest stage")
    print(f"search: {plan['search']}, {plan['timing']}")


check(Path(sys.argv[1]), int(sys.argv[2]))
