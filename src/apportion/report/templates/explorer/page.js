// Puts the page together once its numbers are read.

async function start() {
  const data = await readData(byId("block").textContent);
  byId("block").remove();
  const foldIn = new FoldIn(data);
  const neighbours = new Neighbours(data);
  let map = null;
  let taste = null;
  const panel = new ItemPanel(byId("item"), data, neighbours, { choose: (k) => choose(k, true), add: (k) => taste.add(k) });

  function choose(k, move = false) {
    map.marks.chosen = k;
    map.marks.near = panel.show(k);
    if (move) map.show(k);
    map.redraw();
  }

  function mark(mine, best) {
    Object.assign(map.marks, { mine, best });
    map.redraw();
  }

  map = new ItemMap(byId("canvas"), data, (k) => choose(k));
  byId("zoom-in").addEventListener("click", () => map.zoom(1.6));
  byId("zoom-out").addEventListener("click", () => map.zoom(1 / 1.6));
  byId("zoom-whole").addEventListener("click", () => map.whole());
  new Search(byId("map-search"), data, (k) => choose(k, true));
  new ItemTable(data, (k) => choose(k, true));
  if (data.solvable) {
    taste = new Taste(data, foldIn, { choose: (k) => choose(k, true), nearest: (k, n) => neighbours.nearest(k, n), mark });
    new Search(byId("taste-search"), data, (k) => taste.add(k));
  }
  new BudgetFlow(byId("flow"), data);
  new Attacker(data);
  const positions = (history) => history.map(([code, value]) => [data.positions.get(code), value]);
  window.explorer = {
    data,
    map,
    neighbours: (code, k) => neighbours.nearest(data.positions.get(code), k).map((each) => [data.codes[each.position], each.similarity]),
    recommend: (history, k) => {
      const { scores, best } = foldIn.recommend(positions(history), k);
      return best.map((position) => [data.codes[position], scores[position]]);
    },
    scores: (history) => {
      const scores = foldIn.scores(foldIn.solve(positions(history)));
      return Array.from(data.codes, (_, code) => scores[data.positions.get(code)]);
    },
    parts: (history, code) => foldIn.parts(foldIn.solve(positions(history)), data.positions.get(code)),
    guarantee: (form, epsilon, delta) => new Guarantee(form, epsilon, delta),
  };
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start().catch((error) => {
  byId("failed").hidden = false;
  throw error;
});
