"""check_png.py PNG LOG: the picture is one, is no blank page, and the browser logged no error of the page."""

import struct
import sys
from pathlib import Path

from contract import fail

# A blank page of this size compresses to some 10 kB.
LEAST = 20_000

picture = Path(sys.argv[1]).read_bytes()
if picture[:8] != b"\x89PNG\r\n\x1a\n":
    fail(f"{sys.argv[1]} is no PNG")
if len(picture) <= LEAST:
    fail(f"{sys.argv[1]} has {len(picture)} bytes: a blank page?")
log = Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")
wrong = [line for line in log.splitlines() if ":CONSOLE" in line or "net::ERR_" in line]
if wrong:
    fail("the page's console: " + wrong[0][:400])
width, height = struct.unpack(">II", picture[16:24])
print(f"{Path(sys.argv[1]).name}: {width} x {height}, {len(picture)} bytes, nothing in the console")
