// The budget as a flow: from the whole, through its purposes, to every release.

const FLOW = { least: 1.5, pitch: 22, bar: 12, slot: 18, top: 22, most: 40 };

class BudgetFlow {
  constructor(frame, data) {
    Object.assign(this, { frame, data, width: 0 });
    new ResizeObserver(() => this.fit()).observe(frame);
    this.fit();
  }

  // Drawn at the available width, so that letters keep their size.
  fit() {
    const width = Math.max(300, Math.round(this.frame.clientWidth));
    if (width === this.width) return;
    this.width = width;
    this.wide = width > 560;
    this.draw();
  }

  draw() {
    const each = this.data.flow.length <= FLOW.most;
    const families = this.data.families.map((family) => ({ ...family, releases: each ? this.data.flow.filter((release) => release.family === family.name) : [] }));
    const rows = each ? this.data.flow.length + 0.5 * families.length : families.length;
    const room = Math.max(200, rows * FLOW.pitch);
    const columns = this.wide ? { family: Math.round(this.width * 0.26), release: Math.round(this.width * 0.62) } : { family: 70, release: 150 };
    const label = each ? "The budget as a flow: every release is a button with more details." : "The budget as a flow.";
    const svg = drawn("svg", { viewBox: `0 0 ${this.width} ${room + FLOW.top + 8}`, role: "group", "aria-label": label });
    svg.append(drawn("text", { class: "axis", x: 0, y: 12 }, this.data.budget.form === "gaussian" ? "all of μ²" : "all of ε"));
    this.flow(svg, families, room, columns);
    this.frame.replaceChildren(svg);
  }

  flow(svg, families, room, columns) {
    const slack = families.map((family) => Math.max(0, FLOW.slot - family.share * room)).reduce((sum, part) => sum + part, 0);
    const scale = Math.max(40, room - slack - 6 * families.length);
    const pitch = room / Math.max(1, families.reduce((sum, family) => sum + family.releases.length + 0.5, 0));
    let [from, place, top] = [FLOW.top, FLOW.top, FLOW.top];
    svg.append(drawn("rect", { class: "flow-whole", x: 0, y: FLOW.top, width: FLOW.bar, height: room, rx: 3 }));
    const names = [];
    for (const family of families) {
      const tall = Math.max(FLOW.least, family.share * scale);
      const start = place + Math.max(0, FLOW.slot - tall) / 2;
      const css = `c${family.colour}`;
      svg.append(ribbon([FLOW.bar, from, family.share * room], [columns.family, start, tall], css));
      svg.append(drawn("rect", { class: css, x: columns.family, y: start, width: FLOW.bar, height: tall, rx: 2 }));
      this.releases(svg, family, { top, pitch, start, tall }, columns);
      names.push(this.name(family, start + tall / 2, columns));
      from += family.share * room;
      place += Math.max(tall, FLOW.slot) + 6;
      top += pitch * (family.releases.length + 0.5);
    }
    svg.append(...names);
  }

  name(family, middle, columns) {
    const words = this.wide || !family.releases.length ? `${family.name} · ${percent(family.share)}` : percent(family.share);
    return drawn("text", { class: "strong small flow-name", x: columns.family + FLOW.bar + 6, y: middle + 4 }, words);
  }

  releases(svg, family, { top, pitch, start, tall }, columns) {
    let from = start;
    family.releases.forEach((release, k) => {
      const part = (tall * release.share) / Math.max(family.share, 1e-12);
      const middle = top + pitch * (k + 0.5);
      const thick = Math.max(FLOW.least, Math.min(part, pitch - 3));
      const css = `c${family.colour}`;
      const group = drawn("g", { class: "flow-release", tabindex: "0", role: "button", "aria-label": spokenRelease(release), "data-name": release.name });
      group.append(ribbon([columns.family + FLOW.bar, from, part], [columns.release, middle - thick / 2, thick], css));
      group.append(drawn("rect", { class: css, x: columns.release, y: middle - thick / 2, width: FLOW.bar / 2, height: thick, rx: 1.5 }));
      group.append(drawn("rect", { class: "flow-hit", x: columns.release + 8, y: middle - pitch / 2, width: this.width - columns.release - 8, height: pitch }));
      group.append(drawn("text", { class: "small", x: columns.release + 13, y: middle + 4 }, this.words(release)));
      this.listen(group, release);
      svg.append(group);
      from += part;
    });
  }

  words(release) {
    if (this.wide) return `${release.name} · ± ${figure(release.stddev)}`;
    return release.name.length > 26 ? `${release.name.slice(0, 25)}…` : release.name;
  }

  listen(group, release) {
    const tell = () => this.tell(release, group);
    group.addEventListener("click", tell);
    group.addEventListener("focus", tell);
    group.addEventListener("pointerenter", tell);
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      tell();
    });
  }

  tell(release, group) {
    for (const other of this.frame.querySelectorAll(".flow-release.on")) other.classList.remove("on");
    group.classList.add("on");
    const facts = [
      `${percent(release.share, 2)} of the budget${this.data.budget.form === "gaussian" && release.mu !== null ? ` (μ = ${figure(release.mu)})` : ""}`,
      `${release.mechanism} noise of standard deviation ${figure(release.stddev)} on each number`,
      `one user changes it by at most ${figure(release.sensitivity)}: ${release.derivation}`,
      `size: ${release.shape}`,
    ];
    byId("flow-told").replaceChildren(
      element("h3", {}, release.name),
      element("p", {}, release.purpose),
      element("ul", {}, ...facts.map((fact) => element("li", {}, fact))),
    );
  }
}

function spokenRelease(release) {
  return `${release.name}: ${percent(release.share)} of the budget, noise ${figure(release.stddev)}`;
}

// A band from one bar to another; each end is given by its left edge, its top and its height.
function ribbon([x1, y1, thick1], [x2, y2, thick2], css) {
  const middle = (x1 + x2) / 2;
  const there = `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  const back = `L${x2} ${y2 + thick2} C${middle} ${y2 + thick2} ${middle} ${y1 + thick1} ${x1} ${y1 + thick1}`;
  return drawn("path", { class: `${css} flow-ribbon`, d: `${there} ${back} Z` });
}
