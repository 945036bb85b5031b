// Live charts and keys. Every page works without this script.
"use strict";

const POINTS = 120;
const EVERY_MS = 2000;

function readable(value) {
  if (!Number.isFinite(value)) return "–";
  return value >= 100 ? Math.round(value).toLocaleString() : String(Math.round(value * 1000) / 1000);
}

function draw(figure, points) {
  const most = Math.max(...points, 1e-9);
  const step = 300 / (POINTS - 1);
  const first = POINTS - points.length;
  const line = points.map((value, index) => `${((first + index) * step).toFixed(1)},${(58 - (56 * value) / most).toFixed(1)}`);
  let polyline = figure.querySelector("polyline");
  if (!polyline) {
    polyline = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    figure.querySelector("svg").append(polyline);
  }
  polyline.setAttribute("points", line.join(" "));
  figure.querySelector("output").textContent = readable(points[points.length - 1]);
}

function follow(charts) {
  const series = new Map();
  let before = null;
  async function poll() {
    if (!document.hidden) {
      try {
        const response = await fetch(charts.dataset.live);
        if (response.ok) show(await response.json());
      } catch {
        before = null; // the server is away: the next figures begin a new rate
      }
    }
    setTimeout(poll, EVERY_MS);
  }
  function add(figure, value) {
    const points = series.get(figure) ?? [];
    points.push(value);
    if (points.length > POINTS) points.shift();
    series.set(figure, points);
    draw(figure, points);
  }
  function show(now) {
    for (const figure of charts.querySelectorAll("figure")) {
      const { counter, gauge } = figure.dataset;
      if (gauge) add(figure, now.gauges[gauge]);
      if (counter && before && now.at_ms > before.at_ms) {
        const more = now.counters[counter] - before.counters[counter];
        add(figure, Math.max(0, (more * 1000) / (now.at_ms - before.at_ms)));
      }
    }
    before = now;
  }
  poll();
}

let prefix = false;

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const { key } = event;
  const links = { n: 'a[rel="next"]', p: 'a[rel="prev"]' };
  if (prefix) {
    prefix = false;
    document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`)?.click();
  } else if (key === "g") {
    prefix = true;
  } else if (key === "/") {
    document.querySelector("[data-search]")?.focus();
    event.preventDefault();
  } else if (key in links) {
    document.querySelector(links[key])?.click();
  }
}

document.addEventListener("keydown", press);
document.querySelectorAll("[data-live]").forEach(follow);
