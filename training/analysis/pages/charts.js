// Tells the values of charts: under a pointer, at a tap, and to the keyboard. A chart that has
// values becomes a slider, whose text screen readers say; arrow keys go from value to value.
// Charts hold their values as titles of their shapes, and line charts in `data-stops`, a list of
// [words, x, [y, ...]]; chart_markup.py writes both.
"use strict";
(() => {
  const REACH = 24, JUMP = 10, GAP = 10;
  const STEPS = {
    ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: JUMP, PageDown: -JUMP,
    Home: -Infinity, End: Infinity,
  };
  const box = document.createElement("div");
  box.className = "tooltip";
  box.hidden = true;
  box.setAttribute("aria-hidden", "true"); // the slider says the same
  document.body.append(box);
  let speaking = null;

  function drawn(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /** Values along a line: each has a place in x, and any number of places in y. */
  function stopsOfLines(svg) {
    const { height } = svg.viewBox.baseVal;
    return JSON.parse(svg.dataset.stops).map(([words, x, ys]) => ({
      words, area: { x, y: 0, width: 0, height }, top: Math.min(...ys),
      marks: () => [
        drawn("line", { x1: x, x2: x, y1: Math.min(...ys) - 8, y2: Math.max(...ys) + 8 }),
        ...ys.map((y) => drawn("circle", { cx: x, cy: y, r: 4.5 })),
      ],
    }));
  }

  /** Values of shapes, which lose the titles that a browser would show beside ours. */
  function stopsOfShapes(svg) {
    return [...svg.querySelectorAll("g > title")].map((title) => {
      const area = title.parentNode.getBBox(), words = title.textContent;
      title.remove();
      const frame = { x: area.x - 2, y: area.y - 2, width: area.width + 4, height: area.height + 4 };
      return { words, area, top: area.y, marks: () => [drawn("rect", { ...frame, rx: 3 })] };
    });
  }

  class Chart {
    constructor(svg) {
      this.svg = svg;
      this.stops = svg.dataset.stops ? stopsOfLines(svg) : stopsOfShapes(svg);
      this.place = 0;
      if (!this.stops.length) return;
      svg.querySelector(":scope > title")?.remove(); // aria-label says it
      this.cursor = svg.appendChild(drawn("g", { class: "cursor" }));
      const facts = {
        role: "slider", tabindex: 0, "aria-roledescription": "chart", "aria-valuemin": 1,
        "aria-valuemax": this.stops.length,
      };
      for (const [key, value] of Object.entries(facts)) svg.setAttribute(key, value);
      this.tell();
      svg.addEventListener("keydown", (event) => this.onKey(event));
      svg.addEventListener("focus", () => this.show());
      svg.addEventListener("blur", () => this.hide());
      svg.addEventListener("pointerdown", (event) => this.point(event));
      svg.addEventListener("pointermove", (event) => this.point(event));
      svg.addEventListener("pointerleave", (event) => {
        if (event.pointerType === "mouse") this.hide();
      });
    }

    /** Say the value at the present place to screen readers. */
    tell() {
      this.svg.setAttribute("aria-valuenow", this.place + 1);
      this.svg.setAttribute("aria-valuetext", this.stops[this.place].words);
    }

    onKey(event) {
      if (event.key === "Escape") {
        this.hide();
      } else if (event.key in STEPS && !event.altKey && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        const wanted = this.place + STEPS[event.key];
        this.place = Math.max(0, Math.min(wanted, this.stops.length - 1));
        this.show();
      }
    }

    /** Show the value nearest to a pointer, if one is within reach. */
    point(event) {
      const matrix = this.svg.getScreenCTM();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const away = this.stops.map(({ area }) => Math.hypot(
        Math.max(area.x - at.x, 0, at.x - area.x - area.width),
        Math.max(area.y - at.y, 0, at.y - area.y - area.height),
      ));
      const nearest = Math.min(...away);
      if (nearest * matrix.a > REACH) {
        this.hide();
        return;
      }
      this.place = away.lastIndexOf(nearest); // the upper one of those that overlap
      this.show();
    }

    show() {
      if (speaking !== this) speaking?.hide();
      speaking = this;
      const { words, area, top, marks } = this.stops[this.place];
      this.cursor.replaceChildren(...marks());
      this.tell();
      box.textContent = words;
      box.hidden = false;
      const matrix = this.svg.getScreenCTM();
      const at = new DOMPoint(area.x + area.width / 2, top).matrixTransform(matrix);
      const { width, height } = box.getBoundingClientRect();
      const room = document.documentElement.clientWidth - width - 8;
      const above = at.y - height - GAP, below = at.y + (area.height < 60 ? area.height : 0) + 2 * GAP;
      box.style.left = `${scrollX + Math.max(8, Math.min(at.x - width / 2, room))}px`;
      box.style.top = `${scrollY + (above > 0 ? above : below)}px`;
    }

    hide() {
      this.cursor.replaceChildren();
      if (speaking !== this) return;
      speaking = null;
      box.hidden = true;
    }
  }

  for (const svg of document.querySelectorAll("svg.chart")) new Chart(svg);
  document.addEventListener("pointerdown", (event) => {
    if (speaking && !speaking.svg.contains(event.target)) speaking.hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") speaking?.hide();
  });
})();
