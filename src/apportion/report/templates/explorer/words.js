// Numbers as people read them, and elements made by hand. Text goes in as text, never as markup.

const INTEGERS = new Intl.NumberFormat("en");

function whole(value) {
  return INTEGERS.format(Math.round(value));
}

function percent(fraction, digits = 1) {
  const points = 100 * fraction;
  return `${points >= 1 || points === 0 ? points.toFixed(digits) : Number(points.toPrecision(2))} %`;
}

// A share as a bound: rounded up to a tenth of a point.
function percentBound(fraction) {
  return `${(Math.ceil(1000 * fraction - 1e-9) / 10).toFixed(1)} %`;
}

function figure(value) {
  if (value === 0) return "0";
  return Math.abs(value) >= 1000 ? whole(value) : String(Number(value.toPrecision(4)));
}

// A factor as a bound: rounded up to two digits, or to a tenth.
function factorBound(logarithm) {
  if (logarithm > 20) return `10^${Math.ceil((10 * logarithm) / Math.LN10) / 10}`;
  const value = Math.exp(logarithm);
  const unit = value < 100 ? 0.1 : 10 ** (Math.floor(Math.log10(value)) - 2);
  return value < 100 ? (Math.ceil(value / unit - 1e-9) * unit).toFixed(1) : whole(Math.ceil(value / unit) * unit);
}

function oneIn(probability) {
  const n = 1 / probability;
  return n < 1.95 ? percentBound(probability) : `1 in ${n < 9.5 ? Math.floor(10 * n) / 10 : whole(Math.floor(n))}`;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function byId(name) {
  return document.getElementById(name);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
