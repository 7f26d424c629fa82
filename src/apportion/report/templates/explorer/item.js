// What is known about the chosen item: rank, popularity, reliability, and similar items.

const N_NEAR = 10;

class ItemPanel {
  constructor(panel, data, neighbours, actions) {
    Object.assign(this, { panel, data, neighbours, actions });
  }

  show(k) {
    const near = this.neighbours.nearest(k, N_NEAR);
    const share = this.data.reliability[k] / 65535;
    const add = element("button", { type: "button", class: "primary", click: () => this.actions.add(k) }, this.data.kind === "ratings" ? "Rate it" : "Add to my items");
    this.panel.replaceChildren(
      element("h3", { tabindex: "-1" }, this.data.titles[k]),
      element("p", { class: "detail" }, `item ${this.data.ids[k]} · rank ${whole(k + 1)} of ${whole(this.data.n)} · released popularity ${figure(this.data.popularity[k])}`),
      bar(share),
      element("p", { class: "detail" }, `${percent(share, 0)} from data, ${percent(1 - share, 0)} from the prior.`),
      ...(share < 0.5 ? [element("p", { class: "warn" }, "This item rests more on the prior than on data, so its neighbours mean little.")] : []),
      ...(this.data.solvable ? [add] : []),
      this.data.twinNear ? this.beside(k, near) : this.table("Similar items", near),
    );
    return near.map(({ position }) => position);
  }

  table(caption, near, shared = null) {
    const rows = near.map(({ position, similarity }) =>
      element(
        "tr",
        shared && shared.has(position) ? { class: "shared" } : {},
        element("td", {}, element("button", { type: "button", class: "link", click: () => this.actions.choose(position) }, this.data.titles[position]), ...(shared && shared.has(position) ? [element("span", { class: "both" }, " in both")] : [])),
        element("td", { class: "right" }, similarity.toFixed(2)),
        ...(shared ? [] : [element("td", { class: "right" }, percent(this.data.reliability[position] / 65535, 0))]),
      ),
    );
    const head = ["Item", "Similarity", ...(shared ? [] : ["From data"])].map((words, k) => element("th", { scope: "col", class: k ? "right" : "" }, words));
    return element("table", { class: "dense near" }, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  }

  // Internal page: the neighbours of the same item in the non-private model.
  beside(k, near) {
    const width = this.data.twinWidth;
    const twin = Array.from({ length: width }, (_, place) => ({
      position: this.data.twinNear[k * width + place],
      similarity: this.data.twinSimilarities[k * width + place] / 32767,
    }));
    const ours = new Set(near.map(({ position }) => position));
    const theirs = new Set(twin.map(({ position }) => position));
    return element(
      "div",
      { class: "beside" },
      this.table("With privacy", near, theirs),
      this.table("Without privacy", twin, ours),
    );
  }
}

function bar(share) {
  const inner = element("span", { class: "inner" });
  inner.style.width = `${100 * share}%`;
  return element("span", { class: "bar", role: "img", "aria-label": `${percent(share, 0)} from data` }, inner);
}

// The same items as a table, a page at a time.
class ItemTable {
  constructor(data, onChoose) {
    Object.assign(this, { data, onChoose, first: 0, size: 25 });
    byId("table-back").addEventListener("click", () => this.turn(-1));
    byId("table-on").addEventListener("click", () => this.turn(1));
    this.turn(0);
  }

  turn(by) {
    const last = Math.floor((this.data.n - 1) / this.size) * this.size;
    this.first = Math.min(last, Math.max(0, this.first + by * this.size));
    const end = Math.min(this.data.n, this.first + this.size);
    const rows = Array.from({ length: end - this.first }, (_, place) => this.row(this.first + place));
    byId("table-rows").replaceChildren(...rows);
    byId("table-where").textContent = `Items ${whole(this.first + 1)} to ${whole(end)} of ${whole(this.data.n)}`;
    byId("table-back").disabled = this.first === 0;
    byId("table-on").disabled = this.first === last;
  }

  row(k) {
    const name = element("button", { type: "button", class: "link", click: () => this.onChoose(k) }, this.data.titles[k]);
    const cells = [whole(k + 1), figure(this.data.popularity[k]), percent(this.data.reliability[k] / 65535, 0)];
    return element("tr", {}, element("td", {}, name), ...cells.map((words) => element("td", { class: "right" }, words)));
  }
}
