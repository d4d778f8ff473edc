"""What every JSON answer of the command line has in common: one object, finite numbers."""

import json
import math
import sys
from pathlib import Path


def fail(message):
    sys.exit(f"ci: {message}")


def answer(path):
    """The one JSON object in a file that holds what a command wrote to stdout."""
    text = Path(path).read_text(encoding="utf-8")

    def refused(word):
        fail(f"{path}: {word} is no number of the contract")

    try:
        value = json.loads(text, parse_constant=refused)
    except json.JSONDecodeError as e:
        fail(f"{path}: stdout is not one JSON object: {e}: {text[:200]!r}")
    if not isinstance(value, dict):
        fail(f"{path}: stdout holds {type(value).__name__}, not an object")
    return value


def has(value, where, *keys):
    for key in keys:
        if key not in value:
            fail(f"{where}: `{key}` is missing; there are {sorted(value)}")


def positive(x, where):
    """A finite number above zero."""
    if isinstance(x, bool) or not isinstance(x, (int, float)) or not math.isfinite(x) or x <= 0:
        fail(f"{where}: {x!r} where a number above 0 is needed")
    return x
