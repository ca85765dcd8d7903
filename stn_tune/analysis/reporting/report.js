// Values under the pointer, and switches for the series of a figure. The page is complete without it.
(() => {
  "use strict";
  const number = value => String(+value.toPrecision(4));
  const decimals = text => (text.split(".")[1] || "").length;
  const inside = (box, x, y) => x >= box[0] && x <= box[2] && y >= box[1] && y <= box[3];

  // A path's corners, in the units of the drawing: M is a place, l are steps.
  const corners = path => {
    if (path.corners) return path.corners;
    path.corners = [];
    let [x, y] = [0, 0];
    for (const [, command, text] of path.getAttribute("d").matchAll(/([MLl])([^A-Za-z]*)/g)) {
      const numbers = text.match(/-?(?:\d+\.?\d*|\.\d+)/g).map(Number);
      for (let k = 0; k < numbers.length; k += 2) {
        const [dx, dy] = [numbers[k], numbers[k + 1]];
        [x, y] = command === "l" ? [x + dx, y + dy] : [dx, dy];
        path.corners.push([x, y]);
      }
    }
    return path.corners;
  };

  const toData = (place, from, to, [low, high, log]) => {
    const share = (place - from) / (to - from);
    return log ? Math.exp(Math.log(low) + share * (Math.log(high) - Math.log(low))) : low + share * (high - low);
  };

  // Where a line is above a place: between two corners, or, on a staircase, at the last one before.
  const heightAt = (points, x) => {
    const next = points.findIndex(point => point[0] >= x);
    if (next < 1) return next === 0 && points[0][0] === x ? points[0][1] : null;
    const [a, b] = [points[next - 1], points[next]];
    return b[0] === a[0] ? b[1] : a[1] + (x - a[0]) / (b[0] - a[0]) * (b[1] - a[1]);
  };

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // A piece of a series' line, with its dashes: two series may have one colour.
  const swatch = (svg, key, colour) => {
    const [made, line] = ["svg", "line"].map(tag => document.createElementNS(svg.namespaceURI, tag));
    for (const [name, value] of Object.entries({ x1: 0, y1: 2, x2: 18, y2: 2 })) line.setAttribute(name, value);
    made.setAttribute("viewBox", "0 0 18 4");
    made.setAttribute("aria-hidden", "true");
    const drawn = svg.querySelector(`[data-series="${key}"][data-lines="main"] path`);
    line.style.strokeDasharray = drawn ? getComputedStyle(drawn).strokeDasharray : "none";
    line.style.stroke = `var(--c${colour.slice(1)}, ${colour})`;
    made.append(line);
    return made;
  };

  for (const picture of document.querySelectorAll(".picture")) {
    const drawings = [...picture.querySelectorAll("script")].map(script => {
      return { svg: script.previousElementSibling, facts: JSON.parse(script.textContent) };
    });
    if (!drawings.length) continue;
    const hidden = new Set();
    const tip = element("div", "", "tip");
    tip.hidden = true;
    picture.append(tip);

    const switches = element("div", "", "switches");
    switches.setAttribute("role", "group");
    switches.setAttribute("aria-label", "Show or hide");
    for (const [key, { title, colour }] of Object.entries(drawings[0].facts.series)) {
      const button = element("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      if (colour) button.append(swatch(drawings[0].svg, key, colour));
      button.append(title);
      button.onclick = () => {
        const off = !hidden.delete(key) && hidden.add(key) && true;
        button.setAttribute("aria-pressed", String(!off));
        for (const { svg } of drawings) {
          for (const part of svg.querySelectorAll(`[data-series="${key}"]`)) part.style.display = off ? "none" : "";
        }
      };
      switches.append(button);
    }
    picture.before(switches);

    const values = (svg, facts, panel, x) => {
      const rows = [];
      for (const group of svg.querySelectorAll(`[id$="-axes_${panel.axes}"] [data-lines="main"]`)) {
        const key = group.dataset.series;
        const points = corners(group.querySelector("path"));
        const [endX, endY] = points[points.length - 1];
        const y = hidden.has(key) ? null : x > endX ? endY : heightAt(points, x);
        const title = facts.series[key].title + (x > endX ? " (ended)" : "");
        if (y !== null) rows.push([toData(y, panel.box[3], panel.box[1], panel.y), title]);
      }
      rows.sort((a, b) => a[0] - b[0]);
      if (!rows.length) return [];
      const at = number(toData(x, panel.box[0], panel.box[2], panel.x));
      const places = Math.max(...rows.map(([value]) => decimals(number(value))));
      const lines = rows.map(([value, title]) => `${value.toFixed(Math.min(places, 20))}  ${title}`);
      return [`${panel.unit.split(" (")[0]} ${at}`, ...lines];
    };

    const nearest = (svg, facts, x, y) => {
      let best = { distance: 8, text: null, path: null };
      for (const [key, texts] of Object.entries(facts.texts)) {
        const group = svg.querySelector(`[data-lines="${key}"]`);
        if (!group || hidden.has(group.dataset.series)) continue;
        group.querySelectorAll("path").forEach((path, k) => {
          const height = heightAt(corners(path), x);
          const distance = height === null ? Infinity : Math.abs(height - y);
          if (distance <= best.distance) best = { distance, text: texts[k], path };
        });
      }
      return best;
    };

    let hot = null;
    const cool = () => {
      tip.hidden = true;
      hot?.classList.remove("hot");
      hot = null;
    };
    for (const { svg, facts } of drawings) {
      const show = event => {
        cool();
        const [frame, view] = [svg.getBoundingClientRect(), svg.viewBox.baseVal];
        const x = (event.clientX - frame.left) * view.width / frame.width;
        const y = (event.clientY - frame.top) * view.height / frame.height;
        const panel = facts.panels.find(one => inside(one.box, x, y));
        if (!panel) return;
        const found = Object.keys(facts.texts).length ? nearest(svg, facts, x, y) : null;
        const lines = found ? (found.text ? [found.text] : []) : values(svg, facts, panel, x);
        if (!lines.length) return;
        hot = found?.path ?? null;
        hot?.classList.add("hot");
        tip.replaceChildren(...lines.map(line => element("div", line)));
        tip.hidden = false;
        const outer = picture.getBoundingClientRect();
        const left = event.clientX - outer.left + 14;
        const room = outer.width - tip.offsetWidth - 4;
        tip.style.left = `${Math.max(4, left > room ? left - tip.offsetWidth - 28 : left)}px`;
        tip.style.top = `${event.clientY - outer.top + 14}px`;
      };
      svg.addEventListener("pointermove", show);
      svg.addEventListener("pointerdown", show);
      // A finger that is lifted leaves the values there, until the next one comes down elsewhere.
      svg.addEventListener("pointerleave", event => event.pointerType === "touch" || cool());
    }
    addEventListener("pointerdown", event => picture.contains(event.target) || cool());
  }

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
})();
