// Draws the lanes of a window of time: those whose spans the page holds anew, the others stretched as they are.
mw.Picture = class {
  constructor(root, told, lanes) {
    this.root = root;
    this.full = told.full;
    this.kinds = told.kinds;
    this.lanes = lanes;
    this.rows = [...root.querySelectorAll("[data-lane]")].map((row) => ({
      row,
      data: lanes.get(row.dataset.lane),
      lane: row.querySelector("svg.lane"),
      strip: row.querySelector("svg.strip"),
    }));
    this.axes = [...root.querySelectorAll(".axis svg")];
    const svgs = [...this.axes, ...this.rows.flatMap((r) => [r.lane, r.strip])].filter(Boolean);
    this.whole = new Map(svgs.map((svg) => [svg, [...svg.childNodes]]));
  }

  // Shows `from` to `to` without the hidden kinds.
  draw(from, to, hidden) {
    const whole = from <= 0 && to >= this.full;
    for (const r of this.rows) {
      if (r.row.hidden || !r.lane.clientWidth) continue;
      if (r.data) {
        this.lane(r, from, to, hidden);
      } else {
        this.stretch(r.lane, from, to);
        for (const k of this.kinds) {
          r.lane.querySelectorAll(`.${k}`).forEach((g) => g.toggleAttribute("hidden", hidden.has(k)));
        }
      }
      if (r.strip) {
        if (r.data && !whole) this.phases(r, from, to);
        else this.stretch(r.strip, from, to);
      }
    }
    for (const svg of this.axes) {
      if (whole) svg.replaceChildren(...this.whole.get(svg));
      else this.ticks(svg, from, to);
    }
  }

  // What was drawn for the whole step, wider and moved: its positions are shares of the width.
  stretch(svg, from, to) {
    const was = this.whole.get(svg);
    if (from <= 0 && to >= this.full) {
      svg.replaceChildren(...was);
      return;
    }
    const inner = mw.svg("svg", {
      x: `${(-100 * from) / (to - from)}%`,
      width: `${(100 * this.full) / (to - from)}%`,
      height: "100%",
    });
    inner.replaceChildren(...was);
    svg.replaceChildren(inner);
  }

  lane(r, from, to, hidden) {
    const { start, end, what } = r.data;
    const [width, height] = [r.lane.clientWidth, r.lane.clientHeight];
    const scale = width / (to - from);
    const last = mw.after(start, to);
    let first = mw.after(end, from);
    const paths = this.kinds.map(() => []);
    const put = (kind, x0, x1, share) => {
      const h = Math.max(1, height * share);
      const x = Math.max(-1, x0);
      const w = Math.max(0.4, Math.min(width + 1, x1) - x);
      paths[kind].push(`M${x.toFixed(1)} ${(height - h).toFixed(1)}h${w.toFixed(1)}V${height}h-${w.toFixed(1)}z`);
    };
    if (last - first > 3 * width) {
      this.columns(r.data, first, last, from, scale, width, hidden, put);
    } else {
      let open = null;
      const close = () => {
        if (open) put(open.kind, open.x0, open.x1, open.n === 1 ? 1 : Math.min(1, open.busy / Math.max(1e-9, open.x1 - open.x0)));
        open = null;
      };
      for (; first < last; first++) {
        const kind = what[first].kind;
        if (hidden.has(this.kinds[kind])) continue;
        const [x0, x1] = [(start[first] - from) * scale, (end[first] - from) * scale];
        const narrow = open && (open.x1 - open.x0 < 1 || x1 - x0 < 1);
        if (open && open.kind === kind && x0 - open.x1 < 1 && narrow) {
          open.x1 = x1;
          open.busy += x1 - x0;
          open.n += 1;
        } else {
          close();
          open = { kind, x0, x1, busy: x1 - x0, n: 1 };
        }
      }
      close();
    }
    const grounds = [mw.svg("rect", { class: "ground", width: Math.max(0, (this.full - from) * scale), height: "100%" })];
    const drawn = paths.map((d, k) => d.length && mw.svg("path", { class: this.kinds[k], d: d.join("") })).filter(Boolean);
    r.lane.replaceChildren(...grounds, ...drawn);
  }

  // Too many spans to tell apart: each pixel in the kind that fills most of it, as high as it was busy.
  columns({ start, end, what }, first, last, from, scale, width, hidden, put) {
    const n = this.kinds.length;
    const busy = new Float64Array((width + 1) * n);
    for (; first < last; first++) {
      const kind = what[first].kind;
      if (hidden.has(this.kinds[kind])) continue;
      const x0 = Math.max(0, (start[first] - from) * scale);
      const x1 = Math.min(width, (end[first] - from) * scale);
      for (let x = Math.floor(x0); x <= Math.min(width - 1, x1); x++) {
        busy[x * n + kind] += Math.max(1e-9, Math.min(x1, x + 1) - Math.max(x0, x));
      }
    }
    for (let x = 0; x < width; x++) {
      let total = 0;
      let most = 0;
      for (let k = 0; k < n; k++) {
        total += busy[x * n + k];
        if (busy[x * n + k] > busy[x * n + most]) most = k;
      }
      if (total > 0) put(most, x, x + 1, Math.min(1, Math.max(0.2, total)));
    }
  }

  // `F3` and `B3` above a lane, where there is room.
  phases(r, from, to) {
    const { start, end, what } = r.data;
    const texts = [];
    let open = null;
    const share = (t) => (100 * (t - from)) / (to - from);
    const close = () => {
      const [a, b] = open ? [Math.max(0, share(open.start)), Math.min(100, share(open.end))] : [0, 0];
      if (b - a < 2.2) return;
      const text = mw.svg("text", { x: `${(a + b) / 2}%`, y: 10 });
      if (b - a < 7) text.setAttribute("class", "tight");
      text.textContent = `${open.kind === 0 ? "F" : "B"}${open.batch}`;
      texts.push(text);
    };
    for (let k = mw.after(end, from), last = mw.after(start, to); k < last; k++) {
      const { kind, batch } = what[k];
      if (kind > 1) continue;
      if (open && open.kind === kind && open.batch === batch && start[k] - open.end <= (to - from) / 50) {
        open.end = end[k];
      } else {
        close();
        open = { kind, batch, start: start[k], end: end[k] };
      }
    }
    close();
    r.strip.replaceChildren(...texts);
  }

  ticks(svg, from, to) {
    const [unit, size] = [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]].find(([, s]) => to >= s) || ["ps", 1];
    const rough = (to - from) / 6;
    const decade = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * decade).find((s) => s >= rough);
    const texts = [];
    for (let k = Math.ceil(from / step); k * step <= to; k++) {
      const x = (100 * (k * step - from)) / (to - from);
      const place = x < 3 ? "first" : x > 94 ? "last" : texts.length % 2 ? "odd" : "even";
      const text = mw.svg("text", { x: `${x}%`, y: 12, class: place });
      text.textContent = `${Number((k * step / size).toPrecision(9))}\u00a0${unit}`;
      texts.push(text);
    }
    svg.replaceChildren(...texts);
  }

  // The instruction of a row at a time, or the nearest within `slack`.
  at({ data }, t, slack) {
    if (!data) return -1;
    const k = mw.after(data.end, t);
    if (k < data.end.length && data.start[k] <= t) return k;
    const gap = (i) => (i < 0 || i >= data.end.length ? Infinity : Math.max(data.start[i] - t, t - data.end[i]));
    const best = gap(k) < gap(k - 1) ? k : k - 1;
    return gap(best) <= slack ? best : -1;
  }

  // The instruction in lines, beside its twin in the other trace.
  tell({ row, data }, k) {
    const { name, block, batch } = data.what[k];
    const [source, ...rest] = row.dataset.lane.split("-");
    const other = source === "predicted" ? "measured" : "predicted";
    const pair = this.lanes.get([other, ...rest].join("-"));
    const length = data.end[k] - data.start[k];
    const lines = [
      [name, block, `micro-batch ${batch}`].filter(Boolean).join(" · "),
      `${source}: ${mw.time(length)}, from ${mw.instant(data.start[k], length)} to ${mw.instant(data.end[k], length)}`,
    ];
    if (pair) {
      const theirs = pair.end[k] - pair.start[k];
      const [p, m] = source === "predicted" ? [length, theirs] : [theirs, length];
      const error = m > 0 ? `, error ${p < m ? "−" : "+"}${Math.abs((100 * (p - m)) / m).toFixed(0)}\u00a0%` : "";
      lines.push(`${other}: ${mw.time(theirs)}, from ${mw.instant(pair.start[k], theirs)}${error}`);
    }
    return lines;
  }

  // Marks an instruction in the window.
  mark({ lane, data }, k, from, to) {
    const x = (100 * (data.start[k] - from)) / (to - from);
    const w = (100 * (data.end[k] - data.start[k])) / (to - from);
    lane.append(mw.svg("rect", { class: "picked", x: `${x}%`, width: `${Math.max(w, 0.15)}%`, height: "100%" }));
  }
};

mw.svg = (name, attributes) => {
  const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
  for (const [k, v] of Object.entries(attributes)) element.setAttribute(k, v);
  return element;
};
