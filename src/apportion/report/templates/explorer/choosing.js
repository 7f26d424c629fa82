// A ranking by choice: a second regression of the same form, and places that explore. Scores shown are predicted values.

class ChoiceRanking {
  constructor(data) {
    this.data = data;
    this.about = data.choice;
    const { choiceFeatures: features, choiceWeights: weights, choiceBase: base, choiceRight: right } = data;
    const [low, high] = data.range;
    const label = (value) => (Math.min(Math.max(value, low), high) - low) / (high - low);
    this.foldIn = new FoldIn({ n: data.n, offset: 0, steps: this.about.steps, features, weights, base, right, label });
  }

  // The k best items that are not in the history, with one drawn for this history at every exploring place.
  best(history, values, k) {
    const choices = this.foldIn.scores(this.foldIn.solve(history));
    const worth = choices.map((score, position) => this.data.discounts[position] * score + this.about.value_weight * values[position]);
    for (const [position] of history) worth[position] = -Infinity;
    let best = largest(worth, k, this.data.codes);
    const length = best.length;
    for (let place = this.about.exploring_place - 1; place < length; place += this.about.exploring_place) {
      const found = this.explored(history, best.slice(0, place), worth, values, place);
      if (found === null) continue;
      best = [...best.slice(0, place), found, ...best.slice(place).filter((position) => position !== found)].slice(0, length);
    }
    return best;
  }

  explored(history, listed, worth, values, place) {
    const before = new Set(listed);
    const allowed = this.drawn(history, place).filter((position) => worth[position] > -Infinity && !before.has(position));
    const hoped = (position) => values[position] + this.data.doubts[position];
    return allowed.slice(0, this.about.compared).reduce((one, other) => (one === null || hoped(other) > hoped(one) ? other : one), null);
  }

  drawn(history, place) {
    const { prime, stride, drawn } = this.about;
    const seed = history.reduce((sum, [position]) => sum + this.mixed(this.data.codes[position]), 0) % prime;
    const code = (number) => this.mixed((seed + stride * (place * drawn + number)) % prime) % this.data.n;
    return Array.from({ length: drawn }, (_, number) => this.data.positions.get(code(number)));
  }

  mixed(number) {
    const prime = BigInt(this.about.prime);
    return Number(this.about.added.reduce((x, added) => (x * x + BigInt(added)) % prime, BigInt(number)));
  }
}
