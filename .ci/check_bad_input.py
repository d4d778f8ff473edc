"""check_bad_input.py BINARY ROOT FOLDER: bad input ends with exit code 2, nothing on stdout, one short message on stderr
that names what is wrong, and no file left behind."""

import subprocess
import sys
from pathlib import Path

from contract import fail

LONGEST = 2048  # bytes of a message

binary, root, folder = (Path(p).resolve() for p in sys.argv[1:4])
inputs, work = folder / "inputs", folder / "work"
inputs.mkdir(parents=True)
work.mkdir()


def given(name, text):
    path = inputs / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


job = (root / "examples/quickstart.toml").read_text(encoding="utf-8")
plan = (folder.parent / "threads-1/plan.json").read_text(encoding="utf-8")
program = (folder.parent / "threads-1/step.program").read_text(encoding="utf-8")
config = (root / "examples/llama3-70b/config.json").read_text(encoding="utf-8")

node = ["--cluster", "h100-sxm", "--nodes", "1", "--global-batch", "8"]
usual = [*node, "--sequence", "512"]
short = job.replace('data = "../executor"', f'data = "{given("short.txt", "too short")}"')
CASES = [
    # (what, arguments, a word the message must hold)
    ("no command of that name", ["frobnicate"], "frobnicate"),
    ("ten thousand letters that are no command", ["frob" * 2500], "frob"),
    ("ten thousand letters that are no precision", ["plan", "--precision", "frob" * 2500], "precision"),
    ("a command that is not built yet", ["export", "plan.json", "--json"], "built"),
    ("no such job", ["plan", "missing.toml", "-o", "plan.json", "--json"], "missing.toml"),
    ("no such model", ["plan", "--model", "gpt-nanno", *usual, "-o", "plan.json"], "gpt-nano"),
    ("a misspelt key", ["plan", given("key.toml", job.replace("global_batch", "global_bach")), "-o", "plan.json"], "global_bach"),
    ("no TOML", ["plan", given("broken.toml", "[model\nsource = "), "-o", "plan.json"], "broken.toml"),
    ("not text", ["plan", given("bytes.toml", bytes(range(256)) * 64), "-o", "plan.json"], "bytes.toml"),
    ("a pin of no choice", ["plan", "--model", "gpt-nano", *usual, "--pin", "zp=2", "-o", "plan.json"], "zp"),
    ("a sequence of zero", ["plan", "--model", "llama3-8b", *node, "--sequence", "0", "-o", "plan.json"], "sequence"),
    ("heads that do not divide", ["model", given("heads.json", config.replace('heads": 8', 'heads": 7'))], "num_key_value_heads"),
    ("no plan", ["simulate", given("plan.json", "{}"), "--trace", "trace.json"], "plan.json"),
    ("half a plan", ["lower", given("half.json", plan[: len(plan) // 2]), "-o", "step.program"], "half.json"),
    ("half a program", ["simulate", given("half.program", program[: len(program) // 2]), "--trace", "t.json"], "half.program"),
    ("an fp8 run on the CPU", ["run", str(root / "examples/quickstart.toml"), "--precision", "fp8", "--steps", "1"], "fp"),
    ("no CUDA", ["run", str(root / "examples/quickstart.toml"), "--backend", "cuda", "--steps", "1"], "cuda"),
    ("data shorter than a sequence", ["run", given("short.toml", short), "--steps", "1"], "short.txt"),
]



def squeezed(text):
    """Without what a renderer adds where it breaks lines."""
    return "".join(c for c in text.lower() if c.isalnum() or c in "._")


for what, arguments, word in CASES:
    ran = subprocess.run([binary, *arguments], cwd=work, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
    shown = ran.stderr.decode(errors="replace")
    where = f"bad input, {what} ({' '.join(arguments)[:200]})"
    if ran.returncode != 2:
        fail(f"{where}: exit code {ran.returncode} where 2 is needed: {shown[:1000]}")
    if ran.stdout:
        fail(f"{where}: {len(ran.stdout)} bytes on stdout: {ran.stdout[:200]!r}")
    if not 0 < len(ran.stderr) <= LONGEST:
        fail(f"{where}: a message of {len(ran.stderr)} bytes: {shown[:1000]}")
    if squeezed(word) not in squeezed(shown):
        fail(f"{where}: the message does not say `{word}`: {shown}")
    left = sorted(p.name for p in work.iterdir())
    if left:
        fail(f"{where}: left {left}")
    print(f"{what}: exit 2, {len(ran.stderr)} bytes")
