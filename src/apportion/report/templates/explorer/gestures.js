// Moving the map: pointers, wheel and keys.

const STEP = 60;

Object.assign(ItemMap.prototype, {
  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.released(event, name));
    canvas.addEventListener("pointerleave", () => this.hint(null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => this.redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    for (const name of ["beforeprint", "afterprint"]) {
      addEventListener(name, () => {
        this.colours = null;
        this.draw();
      });
    }
  },

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  },

  pressed(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.place(event));
    this.travelled = this.pointers.size > 1 ? Infinity : 0;
  },

  moved(event) {
    const now = this.place(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hint(this.at(...now), now);
      return;
    }
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    if (others.length) {
      const [other] = others;
      const apart = (place) => Math.max(10, Math.hypot(place[0] - other[0], place[1] - other[1]));
      this.zoom(apart(now) / apart(before), other[0], other[1]);
    } else {
      this.travelled += Math.hypot(now[0] - before[0], now[1] - before[1]);
      this.pan(now[0] - before[0], now[1] - before[1]);
    }
    this.pointers.set(event.pointerId, now);
  },

  released(event, name) {
    if (this.pointers.delete(event.pointerId) && name === "pointerup" && this.travelled < 6) {
      const found = this.at(...this.place(event), event.pointerType === "touch" ? 16 : 8);
      if (found !== null) this.onChoose(found);
    }
  },

  // The wheel scrolls the page unless the map was clicked before, or Ctrl is held.
  wheel(event) {
    if (document.activeElement !== this.canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) / 300), ...this.place(event));
  },

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => this.pan(STEP, 0),
      ArrowRight: () => this.pan(-STEP, 0),
      ArrowUp: () => this.pan(0, STEP),
      ArrowDown: () => this.pan(0, -STEP),
      "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      0: () => this.whole(),
      n: () => this.step(1),
      p: () => this.step(-1),
      Enter: () => this.chooseMiddle(),
      " ": () => this.chooseMiddle(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  },

  step(by) {
    const from = this.marks.chosen === null ? (by > 0 ? -1 : this.data.n) : this.marks.chosen;
    const next = (from + by + this.data.n) % this.data.n;
    this.onChoose(next);
    this.show(next);
  },

  chooseMiddle() {
    const found = this.at(this.width / 2, this.height / 2, 1e9);
    if (found !== null) this.onChoose(found);
  },

  hint(k, place) {
    const tip = byId("tip");
    tip.hidden = k === null;
    this.canvas.classList.toggle("over", k !== null);
    if (k === null) return;
    tip.textContent = this.data.titles[k];
    tip.append(element("span", {}, `rank ${whole(k + 1)} · ${percent(this.data.reliability[k] / 65535, 0)} from data`));
    tip.style.left = `${Math.min(place[0] + 14, this.width - tip.offsetWidth - 6)}px`;
    tip.style.top = `${Math.min(place[1] + 14, this.height - tip.offsetHeight - 6)}px`;
  },
});
