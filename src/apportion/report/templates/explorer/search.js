// A box that finds items by their titles or ids, with a list that works with keys and screen readers.

const MOST_FOUND = 12;

function foundItems(data, words) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return [];
  const first = [];
  const later = [];
  for (let k = 0; k < data.n && first.length < MOST_FOUND; k++) {
    const place = data.lowered[k].indexOf(wanted);
    if (place === 0 || String(data.ids[k]).toLowerCase() === wanted) first.push(k);
    else if (place > 0 && later.length < MOST_FOUND) later.push(k);
  }
  return [...first, ...later].slice(0, MOST_FOUND);
}

class Search {
  constructor(input, data, onChoose) {
    Object.assign(this, { input, data, onChoose, found: [], active: -1 });
    this.list = byId(input.getAttribute("aria-controls"));
    input.addEventListener("input", () => this.look());
    input.addEventListener("keydown", (event) => this.key(event));
    input.addEventListener("blur", () => this.close());
    input.disabled = false;
  }

  look() {
    this.found = foundItems(this.data, this.input.value);
    this.active = -1;
    const options = this.found.map((k, place) =>
      element(
        "li",
        {
          role: "option",
          id: `${this.list.id}-${place}`,
          "aria-selected": "false",
          pointerdown: (event) => event.preventDefault(),
          click: () => this.choose(place),
        },
        this.data.titles[k],
        element("span", {}, `rank ${whole(k + 1)}`),
      ),
    );
    if (!options.length && this.input.value.trim()) options.push(element("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "No such item"));
    this.list.replaceChildren(...options);
    this.open(options.length > 0);
  }

  open(state) {
    this.list.hidden = !state;
    this.input.setAttribute("aria-expanded", String(state));
    if (!state) this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    this.open(false);
  }

  key(event) {
    if (event.key === "Escape") return this.close();
    if (event.key === "Enter") {
      event.preventDefault();
      return this.choose(Math.max(0, this.active));
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !this.found.length) return undefined;
    event.preventDefault();
    this.active = (this.active + step + this.found.length) % this.found.length;
    [...this.list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === this.active)));
    this.input.setAttribute("aria-activedescendant", `${this.list.id}-${this.active}`);
    this.list.children[this.active].scrollIntoView({ block: "nearest" });
    return undefined;
  }

  choose(place) {
    if (place >= this.found.length) return;
    const chosen = this.found[place];
    this.input.value = "";
    this.found = [];
    this.close();
    this.onChoose(chosen);
  }
}
