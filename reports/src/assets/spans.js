// Reads what `spans.rs` wrote: every span of the drawn lanes. The files of this folder share the object `mw`.
"use strict";
const mw = {};

mw.read = (text) => {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const value = new Map([...digits].map((c, k) => [c, k]));
  const out = [];
  let n = 0;
  let scale = 1;
  for (const c of text) {
    const digit = value.get(c);
    n += (digit & 31) * scale;
    scale *= 32;
    if (digit < 32) {
      out.push(n);
      n = 0;
      scale = 1;
    }
  }
  return out;
};

// Lanes by name: start and end of each instruction in picoseconds, its kind, its name, its block and its micro-batch.
mw.lanes = (told) => {
  const listings = new Map();
  for (const [key, text] of Object.entries(told.listings)) {
    let block = 0;
    let batch = 0;
    listings.set(key, mw.read(text).map((k) => {
      const [name, b, m] = told.steps[k];
      block += b;
      batch += m;
      return { name: told.names[name][0], kind: told.names[name][1], block: told.blocks[block], batch };
    }));
  }
  const lanes = new Map();
  for (const [id, [stage, stream, text]] of Object.entries(told.lanes)) {
    const what = listings.get(`${stage}.${stream}`);
    const numbers = mw.read(text);
    if (!what || numbers.length !== 2 * what.length) continue;
    const start = new Float64Array(what.length);
    const end = new Float64Array(what.length);
    let at = 0;
    for (let k = 0; k < what.length; k++) {
      at += numbers[2 * k];
      start[k] = at * told.quantum;
      at += numbers[2 * k + 1];
      end[k] = at * told.quantum;
    }
    lanes.set(id, { what, start, end });
  }
  return lanes;
};

// `1.23 ms`, as the page writes times.
mw.time = (ps) => {
  const units = [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3], ["ps", 1]];
  if (ps <= 0) return "0";
  const [unit, size] = units.find(([, size]) => ps >= size) || units[4];
  const x = ps / size;
  return `${x.toFixed(x >= 100 ? 0 : x >= 10 ? 1 : 2)}\u00a0${unit}`;
};

// An instant to about a tenth of what it is compared with: `1.5342 s`.
mw.instant = (ps, length) => {
  const [unit, size] = [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]].find(([, s]) => ps >= s) || ["ps", 1];
  const digits = Math.min(9, Math.max(1, Math.ceil(Math.log10((10 * size) / Math.max(length, 1)))));
  return ps <= 0 ? "0" : `${(ps / size).toFixed(digits)}\u00a0${unit}`;
};

// First position at which the rising values exceed `x`.
mw.after = (values, x) => {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (values[mid] > x) high = mid;
    else low = mid + 1;
  }
  return low;
};
