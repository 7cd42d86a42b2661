// Gantt charts side by side over one time axis: zoom, move, and what ran there. Draws what can be
// seen only, and of bars that share a pixel the first, so that many thousands stay smooth.
"use strict";
(() => {
  const element = document.getElementById("gantt-data");
  if (!element) return;
  const { unit_s, horizon_s, executors, jobs, charts } = JSON.parse(element.textContent);
  const AXIS = 22, HUES = 24;
  const colours = Array.from({ length: HUES }, (_, k) =>
    `hsl(${(k * 7 % HUES) * 360 / HUES} 45% ${k % 2 ? 62 : 50}%)`);
  const tip = document.getElementById("gantt-tip");
  const range = document.getElementById("gantt-range");
  const view = { from: 0, to: horizon_s };
  let chosen = null; // { chart, bar, task, pointed: with the mouse }
  const mouse = { x: 0, y: 0, moved: false };
  let onPaper = false;
  let waiting = false;

  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint32Array(await new Response(stream).arrayBuffer());
  };

  // Columns as gantt.py wrote them, and where each executor's bars and each bar's tasks begin.
  const unpack = async (chart, k) => {
    const all = await inflate(chart.data);
    const column = (i) => all.subarray(i * chart.bars, (i + 1) * chart.bars);
    const [start, length, executor, job, stage, count] = [0, 1, 2, 3, 4, 5].map(column);
    const lanes = new Int32Array(executors + 1);
    for (const e of executor) lanes[e + 1]++;
    for (let e = 0; e < executors; e++) lanes[e + 1] += lanes[e];
    const firstTask = new Int32Array(chart.bars);
    for (let b = 1; b < chart.bars; b++) firstTask[b] = firstTask[b - 1] + count[b - 1];
    const durations = chart.tasks ? all.subarray(6 * chart.bars) : null;
    const canvas = document.getElementById(`gantt-${k}`);
    return { canvas, start, length, executor, job, stage, count, lanes, firstTask, durations };
  };

  // The first bar of an executor that ends after a time.
  const barAfter = (chart, lane, time) => {
    let low = chart.lanes[lane], high = chart.lanes[lane + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((chart.start[middle] + chart.length[middle]) * unit_s > time) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  const draw = (chart) => {
    const { canvas } = chart;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    const quiet = onPaper ? "#555" : style.getPropertyValue("--quiet");
    const paper = onPaper ? "#fff" : style.getPropertyValue("--paper");
    const ink = onPaper ? "#000" : style.getPropertyValue("--ink");
    const lane = (height - AXIS) / executors, thick = lane > 6 ? lane - 1 : lane;
    const perSecond = width / (view.to - view.from);
    const job = chosen && charts[chosen.chart].ready.job[chosen.bar];
    for (let e = 0; e < executors; e++) {
      let drawn = -1;
      for (let b = barAfter(chart, e, view.from); b < chart.lanes[e + 1]; b++) {
        const begin = chart.start[b] * unit_s;
        if (begin > view.to) break;
        // Whole pixels, or the background would shine through between two bars.
        const exact = (begin - view.from) * perSecond, length = chart.length[b] * unit_s * perSecond;
        const x = Math.round(exact * scale) / scale;
        const right = Math.max(Math.round((exact + length) * scale) / scale, x + 1 / scale);
        if (right <= drawn) continue;
        drawn = right;
        pen.globalAlpha = chosen && chart.job[b] !== job ? 0.22 : 1;
        pen.fillStyle = colours[chart.job[b] % HUES];
        pen.fillRect(x, e * lane, right - x, thick);
        const wide = length / chart.count[b];
        if (chart.durations && wide > 5 && chart.count[b] > 1 && lane > 2) {
          pen.fillStyle = paper;
          let at = chart.start[b];
          for (let t = 0; t < chart.count[b] - 1; t++) {
            at += chart.durations[chart.firstTask[b] + t];
            pen.fillRect((at * unit_s - view.from) * perSecond - 0.5, e * lane, 1, thick);
          }
        }
      }
    }
    pen.globalAlpha = 1;
    if (chosen && charts[chosen.chart].ready === chart) {
      const b = chosen.bar;
      pen.strokeStyle = ink;
      pen.lineWidth = 1.5;
      pen.strokeRect((chart.start[b] * unit_s - view.from) * perSecond, chart.executor[b] * lane,
        Math.max(chart.length[b] * unit_s * perSecond, 2), thick);
    }
    const rough = (view.to - view.from) / Math.max(width / 80, 2);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((n) => n * power >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    pen.clearRect(0, height - AXIS + 1, width, AXIS);
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "bottom";
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
      const x = (n * step - view.from) * perSecond;
      pen.fillStyle = quiet;
      pen.fillRect(x, height - AXIS + 1, 1, 4);
      const text = `${(n * step).toLocaleString("en", { minimumFractionDigits: digits })} s`;
      const half = pen.measureText(text).width / 2;
      if (x - half >= 0 && x + half <= width) pen.fillText(text, x - half, height - 2);
    }
  };

  const drawAll = () => {
    waiting = false;
    for (const { ready } of charts) draw(ready);
    const told = (t) => t.toLocaleString("en", { maximumFractionDigits: 1 });
    range.textContent = `${told(view.from)} to ${told(view.to)} s`;
  };
  const redraw = () => {
    if (!waiting) requestAnimationFrame(drawAll);
    waiting = true;
  };

  const show = (from, to) => {
    const least = Math.max(horizon_s * 1e-6, 10 * unit_s);
    const span = Math.min(Math.max(to - from, least), horizon_s);
    view.from = Math.min(Math.max(from, 0), horizon_s - span);
    view.to = view.from + span;
    redraw();
  };
  const zoom = (factor, around = (view.from + view.to) / 2) =>
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  const move = (share) => {
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  };
  const doing = {
    in: () => zoom(0.6), out: () => zoom(1 / 0.6), left: () => move(-0.25),
    right: () => move(0.25), all: () => show(0, horizon_s),
  };

  const letGo = () => {
    if (chosen) redraw();
    chosen = null;
    tip.textContent = "";
  };

  // Say what a bar is; near a point of the screen, or beside the bar.
  const choose = (k, bar, task, x, y) => {
    const chart = charts[k].ready;
    chosen = { chart: k, bar, task, pointed: x !== undefined };
    redraw();
    let start = chart.start[bar], length = chart.length[bar], what = `${chart.count[bar]} tasks`;
    if (chart.durations && task !== null) {
      for (let t = 0; t < task; t++) start += chart.durations[chart.firstTask[bar] + t];
      length = chart.durations[chart.firstTask[bar] + task];
      what = chart.count[bar] > 1 ? `task ${task + 1} of ${chart.count[bar]} in a row` : "1 task";
    } else if (chart.count[bar] === 1) what = "1 task";
    const told = (units) => (units * unit_s).toLocaleString("en", { maximumFractionDigits: 3 });
    tip.textContent = `job ${jobs[chart.job[bar]]}, stage ${chart.stage[bar] + 1}: ${what}\n` +
      `executor ${chart.executor[bar]}\n` +
      `${told(start)} to ${told(start + length)} s (${told(length)} s)`;
    if (x === undefined) {
      const box = chart.canvas.getBoundingClientRect();
      const middle = (chart.start[bar] + chart.length[bar] / 2) * unit_s;
      x = box.left + (middle - view.from) / (view.to - view.from) * box.width;
      y = box.top + (chart.executor[bar] + 1) / executors * (box.height - AXIS);
    }
    const left = Math.min(Math.max(x + 14, 4), window.innerWidth - tip.offsetWidth - 4);
    const below = y + 16 + tip.offsetHeight < window.innerHeight;
    const top = below ? y + 16 : y - 12 - tip.offsetHeight;
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  };

  const under = (chart, event) => {
    const box = chart.canvas.getBoundingClientRect();
    const time = view.from + (event.clientX - box.left) / box.width * (view.to - view.from);
    const e = Math.floor((event.clientY - box.top) / (box.height - AXIS) * executors);
    if (e < 0 || e >= executors) return { time, bar: -1 };
    const bar = barAfter(chart, e, time);
    if (bar === chart.lanes[e + 1] || chart.start[bar] * unit_s > time) return { time, bar: -1 };
    let task = null;
    if (chart.durations) {
      let end = chart.start[bar];
      task = -1;
      do end += chart.durations[chart.firstTask[bar] + ++task];
      while (end * unit_s <= time && task < chart.count[bar] - 1);
    }
    return { time, bar, task };
  };

  // From bar to bar: along an executor, or to the one above or below at about the same time.
  const step = (k, key) => {
    const chart = charts[k].ready;
    let bar;
    if (!chosen || chosen.chart !== k) {
      const lane = chart.lanes.findIndex((first, e) => e < executors && first < chart.lanes[e + 1]);
      if (lane < 0) return;
      bar = Math.min(barAfter(chart, lane, view.from), chart.lanes[lane + 1] - 1);
    } else {
      bar = chosen.bar;
      const lane = chart.executor[bar];
      if (key === "ArrowRight") bar = Math.min(bar + 1, chart.lanes[lane + 1] - 1);
      else if (key === "ArrowLeft") bar = Math.max(bar - 1, chart.lanes[lane]);
      else {
        const by = key === "ArrowDown" ? 1 : -1;
        let other = lane + by;
        while (other >= 0 && other < executors && chart.lanes[other] === chart.lanes[other + 1]) {
          other += by;
        }
        if (other < 0 || other >= executors) return;
        const time = chart.start[bar] * unit_s;
        bar = Math.min(barAfter(chart, other, time), chart.lanes[other + 1] - 1);
      }
    }
    const middle = (chart.start[bar] + chart.length[bar] / 2) * unit_s, span = view.to - view.from;
    if (middle < view.from || middle > view.to) show(middle - span / 2, middle + span / 2);
    choose(k, bar, null);
  };

  const listen = (chart, k) => {
    const { canvas } = chart;
    let held = null;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / 600);
      else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), under(chart, event).time);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, from: view.from, to: view.to };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held && Math.abs(event.clientX - held.x) > 2) {
        const by = (held.x - event.clientX) / canvas.clientWidth * (held.to - held.from);
        show(held.from + by, held.to + by);
        return;
      }
      // A page that scrolls under a mouse at rest must not undo what the keyboard chose.
      if (!mouse.moved && chosen && !chosen.pointed) return;
      const { bar, task } = under(chart, event);
      if (bar < 0) letGo();
      else choose(k, bar, task, event.clientX, event.clientY);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => { held = null; });
    }
    canvas.addEventListener("pointerleave", () => {
      if (chosen && chosen.pointed) letGo();
    });
    canvas.addEventListener("blur", letGo);
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) step(k, "");
    });
    canvas.addEventListener("keydown", (event) => {
      const arrow = event.key.startsWith("Arrow");
      const across = event.key === "ArrowLeft" || event.key === "ArrowRight";
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (arrow && event.shiftKey && across) doing[event.key === "ArrowLeft" ? "left" : "right"]();
      else if (arrow) step(k, event.key);
      else if (event.key === "+" || event.key === "=") doing.in();
      else if (event.key === "-") doing.out();
      else if (event.key === "0" || event.key === "Home") doing.all();
      else if (event.key === "Escape") letGo();
      else return;
      event.preventDefault();
    });
    new ResizeObserver(redraw).observe(canvas);
  };

  const begin = async () => {
    for (const [k, chart] of charts.entries()) chart.ready = await unpack(chart, k);
    window.addEventListener("pointermove", (event) => {
      mouse.moved = event.screenX !== mouse.x || event.screenY !== mouse.y;
      [mouse.x, mouse.y] = [event.screenX, event.screenY];
    }, { capture: true });
    charts.forEach((chart, k) => listen(chart.ready, k));
    for (const button of document.querySelectorAll("button[data-do]")) {
      button.addEventListener("click", doing[button.dataset.do]);
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(event, () => { onPaper = paper; drawAll(); });
    }
    drawAll();
    document.getElementById("gantts").dataset.drawn = "yes";
  };
  begin();
})();
