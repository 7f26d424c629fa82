// A user's regression, solved here: (base + Σ c f fᵀ) u = right side + Σ c y f, score of an item: offset + f · u.

class FoldIn {
  constructor(data) {
    this.data = data;
    this.width = data.steps.length;
    this.choosing = data.choice ? new ChoiceRanking(data) : null;
  }

  row(position) {
    const start = position * this.width;
    return Float64Array.from(this.data.steps, (step, k) => step * this.data.features[start + k]);
  }

  label(value) {
    if (this.data.label) return this.data.label(value);
    if (this.data.kind !== "ratings") return 1;
    const [low, high] = this.data.range;
    return Math.min(Math.max(value, low), high) - this.data.offset;
  }

  // history: pairs of an item's position and a value
  solve(history) {
    const matrix = Float64Array.from(this.data.base);
    const right = Float64Array.from(this.data.right);
    const seen = history.map(([position, value]) => {
      const row = this.row(position);
      const weight = this.data.weights[position];
      const label = this.label(value);
      addOuter(matrix, row, weight);
      addScaled(right, row, weight * label);
      return { position, row, pull: weight * label };
    });
    const factor = cholesky(matrix, this.width);
    return { seen, factor, coefficients: solveTriangles(factor, right) };
  }

  scores(solution) {
    const { features, steps, offset, n } = this.data;
    const scaled = Float64Array.from(steps, (step, k) => step * solution.coefficients[k]);
    const scores = new Float64Array(n);
    for (let position = 0, place = 0; position < n; position++) {
      let sum = 0;
      for (let k = 0; k < this.width; k++) sum += features[place++] * scaled[k];
      scores[position] = offset + sum;
    }
    return scores;
  }

  // The best items that are not in the history; ties in the order of the model's list.
  recommend(history, k) {
    const solution = this.solve(history);
    const scores = this.scores(solution);
    if (this.choosing) return { solution, scores, best: this.choosing.best(history, scores, k) };
    for (const { position } of solution.seen) scores[position] = -Infinity;
    return { solution, scores, best: largest(scores, k, this.data.codes) };
  }

  // What each item of the history adds to the score of an item; with the prior's part and the offset they sum to it.
  parts(solution, position) {
    const direction = solveTriangles(solution.factor, this.row(position));
    const spoken = solution.seen.map((each) => ({
      position: each.position,
      part: each.pull * dot(direction, each.row),
    }));
    return { prior: this.data.offset + dot(direction, this.data.right), spoken };
  }

  shown(score) {
    return this.data.kind === "ratings" ? Math.min(Math.max(score, this.data.range[0]), this.data.range[1]) : score;
  }
}

// Similar items: products of vectors over the lengths that items are expected to have, uncertainty included.
class Neighbours {
  constructor(data) {
    this.data = data;
    const own = Boolean(data.vectors);
    this.whole = own ? data.vectors : data.features;
    this.steps = own ? data.vectorSteps : data.steps;
    this.first = own ? 0 : data.vectorStart;
    const squares = Float64Array.from({ length: data.n }, (_, position) => this.product(position, this.scaled(position)));
    const known = Float64Array.from(data.reliability, (share) => share / 65535);
    const usual = squares.reduce((a, b) => a + b, 0) / Math.max(known.reduce((a, b) => a + b, 0), 1e-9);
    this.lengths = squares.map((square, position) => Math.sqrt(square + (1 - known[position]) * usual));
  }

  scaled(position) {
    const start = position * this.steps.length;
    return this.steps.map((step, k) => (k < this.first ? 0 : step * step * this.whole[start + k]));
  }

  product(position, scaled) {
    const start = position * this.steps.length;
    let sum = 0;
    for (let k = this.first; k < this.steps.length; k++) sum += this.whole[start + k] * scaled[k];
    return sum;
  }

  nearest(position, k) {
    const scaled = this.scaled(position);
    const similarities = new Float64Array(this.data.n);
    for (let other = 0; other < this.data.n; other++) {
      similarities[other] = this.product(other, scaled) / Math.max(this.lengths[other] * this.lengths[position], 1e-30);
    }
    similarities[position] = -Infinity;
    return largest(similarities, k, this.data.codes).map((other) => ({ position: other, similarity: similarities[other] }));
  }
}

function addOuter(matrix, row, weight) {
  const width = row.length;
  for (let i = 0; i < width; i++) {
    const factor = weight * row[i];
    for (let j = 0; j <= i; j++) matrix[i * width + j] += factor * row[j];
  }
}

function addScaled(sum, row, factor) {
  for (let k = 0; k < row.length; k++) sum[k] += factor * row[k];
}

function dot(one, other) {
  let sum = 0;
  for (let k = 0; k < one.length; k++) sum += one[k] * other[k];
  return sum;
}

// The lower triangle L of matrix = L Lᵀ, row by row.
function cholesky(matrix, width) {
  const factor = new Float64Array(width * width);
  for (let i = 0; i < width; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = matrix[i * width + j];
      for (let k = 0; k < j; k++) sum -= factor[i * width + k] * factor[j * width + k];
      factor[i * width + j] = i === j ? Math.sqrt(Math.max(sum, 1e-30)) : sum / factor[j * width + j];
    }
  }
  return factor;
}

function solveTriangles(factor, right) {
  const width = right.length;
  const solution = Float64Array.from(right);
  for (let i = 0; i < width; i++) {
    for (let k = 0; k < i; k++) solution[i] -= factor[i * width + k] * solution[k];
    solution[i] /= factor[i * width + i];
  }
  for (let i = width - 1; i >= 0; i--) {
    for (let k = i + 1; k < width; k++) solution[i] -= factor[k * width + i] * solution[k];
    solution[i] /= factor[i * width + i];
  }
  return solution;
}

// Positions of the k largest values, largest first; ties in the order of the codes.
function largest(values, k, codes) {
  const finite = [];
  for (let position = 0; position < values.length; position++) if (values[position] > -Infinity) finite.push(position);
  finite.sort((one, other) => values[other] - values[one] || codes[one] - codes[other]);
  return finite.slice(0, k);
}
