// What an attacker can find out who knows everything except whether one person took part.

const EPSILONS = { low: 0.05, high: 20 };
const BELIEFS = [0.5, 0.1, 0.01];
const FALSE_ALARMS = [0.01, 0.05, 0.2];

class Attacker {
  constructor(data) {
    this.data = data;
    this.slider = byId("epsilon");
    this.slider.addEventListener("input", () => this.show(this.chosen()));
    byId("epsilon-own").addEventListener("click", () => this.reset());
    this.reset();
  }

  chosen() {
    const share = Number(this.slider.value) / Number(this.slider.max);
    return Number((EPSILONS.low * (EPSILONS.high / EPSILONS.low) ** share).toPrecision(3));
  }

  reset() {
    const { epsilon } = this.data.budget;
    const share = Math.log(epsilon / EPSILONS.low) / Math.log(EPSILONS.high / EPSILONS.low);
    this.slider.value = Math.min(1, Math.max(0, share)) * Number(this.slider.max);
    this.show(epsilon);
  }

  show(epsilon) {
    const { form, delta, epsilon: own } = this.data.budget;
    const guarantee = new Guarantee(form, epsilon, delta);
    const model = epsilon === own ? " This is the model’s own ε." : "";
    this.slider.setAttribute("aria-valuetext", `ε = ${figure(epsilon)}: best guess right ${percentBound(guarantee.bestGuess)} of the time`);
    byId("epsilon-shown").textContent = `ε = ${figure(epsilon)}`;
    byId("attack-words").textContent =
      `A coin toss is right half of the time. The best attack is right at most ${percentBound(guarantee.bestGuess)} of the time. ` +
      `The release changes the odds by a factor of at most ${factorBound(guarantee.logOdds)}` +
      `${delta ? `, except with probability ${this.data.budget.deltaWords}` : ""}.${model}`;
    byId("attack-beliefs").replaceChildren(...BELIEFS.map((belief) => beliefRow(guarantee, belief)));
    byId("attack-alarms").replaceChildren(...FALSE_ALARMS.map((rate) => alarmRow(guarantee, rate)));
    byId("attack-curve").replaceChildren(this.curve(guarantee));
    byId("attack-guesses").replaceChildren(guessDots(guarantee.bestGuess));
  }

  curve(guarantee) {
    const size = 320;
    const x = (value) => 40 + value * (size - 56);
    const y = (value) => size - 40 - value * (size - 56);
    const points = Array.from({ length: 201 }, (_, k) => {
      const rate = (k / 200) ** 2;
      return `${x(rate).toFixed(1)} ${y(guarantee.detected(rate)).toFixed(1)}`;
    });
    const label = `Trade-off curve: at 1 % false alarms at most ${percentBound(guarantee.detected(0.01))} are found, at 20 % at most ${percentBound(guarantee.detected(0.2))}.`;
    const svg = drawn("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label });
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(drawn("line", { class: tick ? "grid" : "base", x1: x(0), x2: x(1), y1: y(tick), y2: y(tick) }));
      svg.append(drawn("text", { class: "axis", x: 34, y: y(tick) + 4, "text-anchor": "end" }, `${100 * tick}`));
      svg.append(drawn("text", { class: "axis", x: x(tick), y: size - 24, "text-anchor": "middle" }, `${100 * tick}`));
    }
    svg.append(drawn("path", { class: "area-noise", d: `M${points.join(" L")} L${x(1)} ${y(1)} L${x(0)} ${y(0)}Z` }));
    svg.append(drawn("line", { class: "guide", x1: x(0), x2: x(1), y1: y(0), y2: y(1) }));
    svg.append(drawn("path", { class: "curve-noise", d: `M${points.join(" L")}` }));
    svg.append(drawn("text", { class: "axis", x: x(0.5), y: size - 6, "text-anchor": "middle" }, "% of non-participants falsely accused"));
    svg.append(drawn("text", { class: "axis", x: x(0), y: 11 }, "% of participants found"));
    svg.append(drawn("text", { class: "axis small", x: x(0.99), y: y(0.42), "text-anchor": "end" }, "dotted: a coin toss"));
    return svg;
  }
}

// Probability before and, at most, after.
function beliefRow(guarantee, belief) {
  const odds = (belief / (1 - belief)) * Math.exp(Math.min(guarantee.logOdds, 600));
  const after = odds > 1e12 ? "certain" : percentBound(odds / (1 + odds));
  const before = `${belief === 0.5 ? "even odds" : oneIn(belief)} (${percent(belief, 0)})`;
  return element("tr", {}, element("td", {}, before), element("td", { class: "right" }, after));
}

function alarmRow(guarantee, rate) {
  return element("tr", {}, element("td", {}, percent(rate, 0)), element("td", { class: "right" }, percentBound(guarantee.detected(rate))));
}

// A hundred guesses: right by luck, right thanks to the release, wrong.
function guessDots(bestGuess) {
  const right = Math.ceil(100 * bestGuess - 1e-9);
  const svg = drawn("svg", { viewBox: "0 0 400 108", role: "img", "aria-label": `Of 100 best guesses at most ${right} are right; a coin toss gets 50.` });
  for (let k = 0; k < 100; k++) {
    const css = k < 50 ? "dot-luck" : k < right ? "dot-gain" : "dot-wrong";
    svg.append(drawn("circle", { class: css, cx: 10 + (k % 25) * 15.8, cy: 14 + Math.floor(k / 25) * 25, r: 6 }));
  }
  return svg;
}
