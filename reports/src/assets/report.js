// The page's state is a window of time, filters and a section; all of it stands in the fragment of the address.
(() => {
  const $ = (id) => document.getElementById(id);
  const root = $("lanes");
  const state = { from: 0, to: 0, stage: "", rank: "", hidden: new Set(), section: "" };
  let picture = null;
  let picked = null;
  let waiting = false;

  // ---- the address: #section?t=from-to&stage=0&rank=1&hide=kind,kind
  const address = () => {
    const parts = [];
    if (picture && (state.from > 0 || state.to < picture.full)) {
      parts.push(`t=${Math.round(state.from)}-${Math.round(state.to)}`);
    }
    if (state.stage) parts.push(`stage=${state.stage}`);
    if (state.rank) parts.push(`rank=${state.rank}`);
    if (state.hidden.size) parts.push(`hide=${[...state.hidden].sort().join(",")}`);
    const section = state.section || (parts.length ? "timeline" : "");
    return section || parts.length ? `#${section}${parts.length ? `?${parts.join("&")}` : ""}` : "";
  };
  const write = () => history.replaceState(null, "", address() || location.pathname + location.search);
  const follow = () => {
    const [section, query] = decodeURIComponent(location.hash.slice(1)).split("?");
    const target = section && $(section);
    if (target && target.matches("main > section")) state.section = section;
    if (query === undefined || !picture) return;
    const values = new Map(query.split("&").map((p) => p.split("=")));
    const [from, to] = (values.get("t") || "").split("-").map(Number);
    const sound = Number.isFinite(from) && Number.isFinite(to) && to > from;
    [state.from, state.to] = sound ? bounded(from, to) : [0, picture.full];
    const choice = (id, value) => {
      const found = $(id) && [...$(id).options].some((o) => o.value === value);
      if ($(id)) $(id).value = found ? value : "";
      return found ? value : "";
    };
    state.stage = choice("pick-stage", values.get("stage") || "");
    state.rank = choice("pick-rank", values.get("rank") || "");
    state.hidden = new Set((values.get("hide") || "").split(",").filter((k) => picture.kinds.includes(k)));
    document.querySelectorAll("#controls input").forEach((box) => (box.checked = !state.hidden.has(box.value)));
    filter();
    draw();
    if (target) target.scrollIntoView();
  };

  // ---- the window
  const bounded = (from, to) => {
    const least = Math.max(picture.full / 1e6, 1);
    const width = Math.min(Math.max(to - from, least), picture.full);
    const start = Math.min(Math.max(0, from + (to - from - width) / 2), picture.full - width);
    return [start, start + width];
  };
  const show = (from, to) => {
    [state.from, state.to] = bounded(from, to);
    draw();
    write();
  };
  const move = (share) => {
    const by = (state.to - state.from) * share;
    const most = picture.full - state.to;
    const shift = Math.min(Math.max(by, -state.from), most);
    show(state.from + shift, state.to + shift);
  };
  const zoom = (factor, at = (state.from + state.to) / 2) => {
    show(at - (at - state.from) / factor, at + (state.to - at) / factor);
  };
  const draw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      picture.draw(state.from, state.to, state.hidden);
      if (picked && picked.k >= 0) picture.mark(picked.row, picked.k, state.from, state.to);
      const whole = state.from <= 0 && state.to >= picture.full;
      const lines = picked && picked.k >= 0 ? picture.tell(picked.row, picked.k).join("; ") : "";
      const span = `${mw.instant(state.from, state.to - state.from)} to ${mw.instant(state.to, state.to - state.from)} of ${mw.time(picture.full)}`;
      $("window").textContent = `${whole ? "The whole step" : span}${lines ? `. ${lines}` : ""}`;
    });
  };

  // ---- filters
  const filter = () => {
    picked = null;
    for (const stage of root.querySelectorAll(".of-stage")) {
      const rows = [...stage.querySelectorAll("[data-of]")];
      const chosen = (of) => state.rank === "" || state.rank === "all" || of === state.rank;
      rows.forEach((row) => (row.hidden = !chosen(row.dataset.of)));
      const stageOff = state.stage !== "" && stage.dataset.stage !== state.stage;
      stage.hidden = stageOff || rows.every((row) => row.hidden);
      const more = stage.querySelector("details");
      if (more) {
        more.open = state.rank !== "" && [...more.querySelectorAll("[data-of]")].some((row) => !row.hidden);
        more.hidden = state.rank !== "" && !more.open;
      }
    }
  };

  // ---- the pointer and the keyboard
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  const under = (event) => {
    const row = picture.rows.find((r) => r.row.contains(event.target));
    const svg = row ? row.lane : picture.rows.find((r) => r.lane.clientWidth)?.lane;
    if (!svg) return null;
    const box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    return { row, share, t: state.from + share * (state.to - state.from), slack: (3 * (state.to - state.from)) / box.width, box };
  };
  const hover = (event) => {
    const at = under(event);
    const k = at && at.row && at.share >= 0 ? picture.at(at.row, at.t, at.slack) : -1;
    tip.hidden = k < 0;
    if (k < 0) return;
    tip.replaceChildren(...picture.tell(at.row, k).map((line) => {
      const p = document.createElement("p");
      p.textContent = line;
      return p;
    }));
    const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  };
  const pick = (by, byRow) => {
    const rows = picture.rows.filter((r) => r.data && r.lane.clientWidth);
    if (!rows.length) return;
    const now = picked ? rows.indexOf(picked.row) : -1;
    const row = rows[Math.min(Math.max(now < 0 ? 0 : now + byRow, 0), rows.length - 1)];
    const middle = picked && picked.k >= 0 ? picked.row.data.start[picked.k] : state.from;
    const k = picked && picked.row === row && picked.k >= 0 ? picked.k + by : Math.max(0, mw.after(row.data.end, middle));
    picked = { row, k: Math.min(Math.max(k, 0), row.data.what.length - 1) };
    const [a, b] = [row.data.start[picked.k], row.data.end[picked.k]];
    if (a < state.from || b > state.to) {
      const width = Math.max(state.to - state.from, b - a);
      show((a + b - width) / 2, (a + b + width) / 2);
    }
    draw();
  };
  const keys = {
    ArrowLeft: () => move(-0.1),
    ArrowRight: () => move(0.1),
    ArrowUp: () => pick(0, -1),
    ArrowDown: () => pick(0, 1),
    "+": () => zoom(1.6),
    "=": () => zoom(1.6),
    "-": () => zoom(1 / 1.6),
    Home: () => show(0, picture.full),
    ",": () => pick(-1, 0),
    ".": () => pick(1, 0),
    Escape: () => {
      picked = null;
      tip.hidden = true;
      draw();
    },
  };
  const buttons = { in: "+", out: "-", left: "ArrowLeft", right: "ArrowRight", home: "Home" };

  const drag = () => {
    let from = null;
    const range = document.createElement("div");
    range.id = "range";
    range.hidden = true;
    root.append(range);
    root.addEventListener("pointerdown", (event) => {
      const at = event.button === 0 && !event.target.closest("summary") && under(event);
      if (!at || at.share < 0 || at.share > 1) return;
      from = { x: event.clientX, at, start: state.from, end: state.to, range: event.shiftKey };
      root.setPointerCapture(event.pointerId);
    });
    root.addEventListener("pointermove", (event) => {
      if (!from) return hover(event);
      tip.hidden = true;
      const by = event.clientX - from.x;
      if (from.range) {
        const [left, top] = [Math.min(from.x, event.clientX), root.getBoundingClientRect()];
        Object.assign(range.style, { left: `${left - top.left}px`, width: `${Math.abs(by)}px` });
        range.hidden = false;
      } else {
        const shift = (-by / from.at.box.width) * (from.end - from.start);
        const kept = Math.min(Math.max(shift, -from.start), picture.full - from.end);
        [state.from, state.to] = [from.start + kept, from.end + kept];
        draw();
      }
    });
    const stop = (event) => {
      if (!from) return;
      const by = event.clientX - from.x;
      if (from.range && Math.abs(by) > 3) {
        const other = from.at.t + (by / from.at.box.width) * (from.end - from.start);
        show(Math.min(from.at.t, other), Math.max(from.at.t, other));
      }
      from = null;
      range.hidden = true;
      write();
    };
    root.addEventListener("pointerup", stop);
    root.addEventListener("pointercancel", stop);
    root.addEventListener("pointerleave", () => (tip.hidden = true));
    root.addEventListener("dblclick", (event) => {
      const at = under(event);
      if (at && at.share >= 0) zoom(2, at.t);
    });
    root.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const at = under(event);
      if (at) zoom(Math.exp(-event.deltaY / 300), at.t);
    }, { passive: false });
  };

  const timeline = () => {
    const told = JSON.parse($("spans").textContent);
    picture = new mw.Picture(root, told, mw.lanes(told));
    state.to = picture.full;
    ["controls", "keys", "window"].forEach((id) => ($(id).hidden = false));
    $("kinds").hidden = true;
    if ($("columns")) $("columns").hidden = picture.rows.every((r) => r.data);
    root.tabIndex = 0;
    root.setAttribute("aria-describedby", "keys");
    root.classList.add("live");
    root.append(tip);
    root.addEventListener("keydown", (event) => {
      const act = !event.ctrlKey && !event.altKey && !event.metaKey && event.target === root && keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    drag();
    $("controls").addEventListener("click", (event) => {
      const key = buttons[event.target.dataset.do];
      if (key) keys[key]();
    });
    $("controls").addEventListener("change", (event) => {
      const { id, value, checked } = event.target;
      if (id === "pick-stage") state.stage = value;
      else if (id === "pick-rank") state.rank = value;
      else if (checked) state.hidden.delete(value);
      else state.hidden.add(value);
      filter();
      draw();
      write();
    });
    root.addEventListener("toggle", draw, true);
    new ResizeObserver(draw).observe(root);
    draw();
  };

  // ---- copying
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const texts = {
    link: () => location.href,
    twin: () => JSON.stringify(JSON.parse($("twin").textContent), null, 2),
  };
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.parentElement.hidden = false;
    button.setAttribute("aria-live", "polite");
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const what = button.dataset.copy;
      await copy(texts[what] ? texts[what]() : $(what).textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 1500);
    });
  }

  // ---- where the reader is
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const spy = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      links.forEach((a, id) => (id === entry.target.id ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current")));
      const link = links.get(entry.target.id);
      if (link) link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.clientWidth / 2;
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  document.querySelectorAll("main > section").forEach((s) => spy.observe(s));

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("main details:not([open])")];
    folded.forEach((d) => (d.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((d) => (d.open = false)));

  if (root && $("spans")) timeline();
  follow();
  addEventListener("hashchange", () => {
    follow();
    if (!location.hash.includes("?") && address() !== location.hash) write();
  });
})();
