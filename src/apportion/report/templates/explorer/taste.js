// "What would I get?": the visitor's items, the regression solved on them, and which of them support each recommendation.

const N_BEST = 20;
const N_EXAMPLE = 5;
const N_REASONS = 3;

class Taste {
  constructor(data, foldIn, actions) {
    Object.assign(this, { data, foldIn, actions, mine: new Map() });
    byId("taste-clear").addEventListener("click", () => this.replace([]));
    byId("taste-example").addEventListener("click", () => this.replace(this.example()));
    this.show();
  }

  get rated() {
    return this.data.kind === "ratings";
  }

  add(k, value = this.data.range[1]) {
    if (!this.mine.has(k)) this.mine.set(k, value);
    this.show();
    byId("taste-said").textContent = `${this.data.titles[k]} is among your items.`;
  }

  replace(pairs) {
    this.mine = new Map(pairs);
    this.show();
    byId("taste-said").textContent = pairs.length ? `${pairs.length} items chosen for you.` : "Your items were cleared.";
  }

  // A popular item, similar items, and for ratings one that is not similar.
  example() {
    const start = Math.floor(Math.random() * Math.min(100, this.data.n));
    const near = this.actions.nearest(start, N_EXAMPLE - 1).map((each) => each.position);
    return [start, ...near].map((k) => [k, this.data.range[1]]);
  }

  show() {
    byId("taste-mine").replaceChildren(...[...this.mine].map(([k, value]) => this.line(k, value)));
    byId("taste-none").hidden = this.mine.size > 0;
    byId("taste-clear").disabled = this.mine.size === 0;
    this.answer();
  }

  line(k, value) {
    const title = this.data.titles[k];
    const remove = element("button", { type: "button", class: "small", "aria-label": `Remove ${title}`, click: () => this.remove(k) }, "✕");
    if (!this.rated) return element("li", {}, element("span", { class: "title" }, title), remove);
    const [low, high] = this.data.range;
    const said = element("output", {}, figure(value));
    const slider = element("input", {
      type: "range",
      min: low,
      max: high,
      step: (high - low) / 8,
      "aria-label": `Your rating of ${title}`,
      input: (event) => {
        this.mine.set(k, Number(event.target.value));
        said.textContent = figure(Number(event.target.value));
        this.answer();
      },
    });
    slider.value = value;
    return element("li", {}, element("span", { class: "title" }, title), slider, said, remove);
  }

  remove(k) {
    this.mine.delete(k);
    this.show();
    byId("taste-search").focus();
  }

  answer() {
    const waiting = this.mine.size === 0 && !this.rated;
    const { solution, scores, best } = waiting ? { best: [] } : this.foldIn.recommend([...this.mine], N_BEST);
    byId("taste-best").replaceChildren(...best.map((k) => this.recommendation(k, scores, best, solution)));
    byId("taste-head").textContent = this.mine.size ? "What you would get" : this.rated ? "What everybody would get" : "Add an item to see what you would get";
    this.actions.mark(new Set(this.mine.keys()), new Set(this.mine.size ? best : []));
  }

  recommendation(k, scores, best, solution) {
    const score = scores[k];
    const [low, high] = this.rated ? this.data.range : [Math.min(0, scores[best.at(-1)]), Math.max(scores[best[0]], 1e-9)];
    const meter = element("span", { class: "bar", "aria-hidden": "true" }, element("span", { class: "inner" }));
    meter.firstChild.style.width = `${(100 * (this.foldIn.shown(score) - low)) / Math.max(high - low, 1e-12)}%`;
    const name = element("button", { type: "button", class: "link", click: () => this.actions.choose(k) }, this.data.titles[k]);
    const value = element("span", { class: "value" }, this.rated ? this.foldIn.shown(score).toFixed(2) : score.toFixed(3));
    return element("li", { "data-code": this.data.codes[k], "data-score": score }, name, meter, value, element("span", { class: "why" }, this.why(k, solution)));
  }

  why(k, solution) {
    if (!this.mine.size) return "from the prior: you have not chosen anything yet";
    const { prior, spoken } = this.foldIn.parts(solution, k);
    const most = spoken.sort((one, other) => Math.abs(other.part) - Math.abs(one.part)).slice(0, N_REASONS);
    const digits = this.rated ? 2 : 3;
    const shown = most.filter(({ part }) => Math.abs(part) >= 0.5 * 10 ** -digits);
    const reasons = shown.map(({ position, part }) => `${this.data.titles[position]} ${part < 0 ? "−" : "+"}${Math.abs(part).toFixed(digits)}`);
    const ground = this.rated ? `${prior.toFixed(2)} without you` : null;
    return [ground, ...reasons].filter(Boolean).join(" · ");
  }
}
