// The normal distribution, and what an attacker can do against a guarantee.

// 1 − Φ(x): a series near 0, a continued fraction further out (both to some 15 digits).
function normalTail(x) {
  if (x < 0) return 1 - normalTail(-x);
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x < 2.5) {
    let term = x;
    let sum = x;
    for (let k = 1; Math.abs(term) > 1e-17 * sum; k++) {
      term *= (x * x) / (2 * k + 1);
      sum += term;
    }
    return 0.5 - density * sum;
  }
  let fraction = 0;
  for (let k = 160; k >= 1; k--) fraction = k / (x + fraction);
  return density / (x + fraction);
}

// The x with 1 − Φ(x) = p, by halving an interval.
function normalTailPoint(p) {
  if (p > 0.5) return -normalTailPoint(1 - p);
  let low = 0;
  let high = 40;
  for (let k = 0; k < 100; k++) {
    const middle = (low + high) / 2;
    if (normalTail(middle) > p) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

function deltaOf(epsilon, mu) {
  if (mu === 0) return 0;
  const near = normalTail(epsilon / mu - mu / 2);
  const far = normalTail(epsilon / mu + mu / 2);
  return Math.max(0, near - (far > 0 ? Math.exp(epsilon + Math.log(far)) : 0));
}

// The largest μ of a Gaussian mechanism that is (ε, δ)-private.
function muOf(epsilon, delta) {
  let low = 0;
  let high = 1;
  while (deltaOf(epsilon, high) <= delta && high < 1e6) high *= 2;
  for (let k = 0; k < 200 && high - low > 1e-14 * high; k++) {
    const middle = (low + high) / 2;
    if (deltaOf(epsilon, middle) <= delta) low = middle;
    else high = middle;
  }
  return low;
}

// What is known about the releases: the Gaussian curve of a μ, the two lines of a pure ε, or (ε, δ) alone.
class Guarantee {
  constructor(form, epsilon, delta) {
    Object.assign(this, { form, epsilon, delta });
    this.mu = form === "gaussian" ? muOf(epsilon, delta) : null;
  }

  // The share of participants that a test can find if it accuses this share of non-participants.
  detected(falseAlarms) {
    if (falseAlarms >= 1) return 1;
    if (this.form === "gaussian") return falseAlarms <= 0 ? 0 : normalTail(normalTailPoint(falseAlarms) - this.mu);
    const odds = Math.exp(this.epsilon);
    return Math.min(1, this.delta + odds * falseAlarms, 1 - (1 - this.delta - falseAlarms) / odds);
  }

  get bestGuess() {
    if (this.form === "gaussian") return 1 - normalTail(this.mu / 2);
    return 1 - (1 - this.delta) / (1 + Math.exp(this.epsilon));
  }

  // The odds move by a factor of at most e to this, except with probability δ.
  get logOdds() {
    if (this.form === "gaussian") return (this.mu * this.mu) / 2 + this.mu * normalTailPoint(this.delta);
    return this.form === "pure" ? this.epsilon : 2 * this.epsilon;
  }
}
