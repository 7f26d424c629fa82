// The map: one dot for each item. Dragging, the wheel, fingers, buttons and keys move it.

const SHADES = 8;
const MOST_LABELS = 16;
const CELLS = 64;
const LARGE = 4;
const MANY = 2500;

class ItemMap {
  constructor(canvas, data, onChoose) {
    Object.assign(this, { canvas, data, onChoose });
    this.context = canvas.getContext("2d");
    this.across = Float32Array.from({ length: data.n }, (_, k) => data.places[2 * k] / data.grid);
    this.up = Float32Array.from({ length: data.n }, (_, k) => data.places[2 * k + 1] / data.grid);
    const most = Math.max(data.popularity[0], 1e-9);
    this.sizes = Float32Array.from(data.popularity, (value) => 1.1 + 8 * Math.sqrt(Math.max(value, 0) / most));
    this.shades = Uint8Array.from(data.reliability, (value) => Math.min(SHADES - 1, Math.floor((value / 65535) * SHADES)));
    this.bounds = [this.across, this.up].map(extremes);
    this.cells = this.sorted();
    this.marks = { chosen: null, near: [], mine: new Set(), best: new Set() };
    this.pointers = new Map();
    this.whole();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  // Items by the cell of a grid that they lie in, for finding what is under a pointer.
  sorted() {
    const cells = Array.from({ length: CELLS * CELLS }, () => []);
    for (let k = 0; k < this.data.n; k++) cells[this.cell(this.across[k], this.up[k])].push(k);
    return cells;
  }

  cell(x, y) {
    const column = Math.min(CELLS - 1, Math.max(0, Math.floor(x * CELLS)));
    return Math.min(CELLS - 1, Math.max(0, Math.floor(y * CELLS))) * CELLS + column;
  }

  whole() {
    const [x, y] = this.bounds.map(([low, high]) => (low + high) / 2);
    this.view = { x, y, zoom: 1 };
    this.redraw();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
    this.draw();
  }

  get unit() {
    const [across, up] = this.bounds.map(([low, high]) => Math.max(high - low, 1e-3));
    return Math.min((this.width - 36) / across, (this.height - 36) / up) * this.view.zoom;
  }

  screen(k) {
    return [(this.across[k] - this.view.x) * this.unit + this.width / 2, (this.up[k] - this.view.y) * this.unit + this.height / 2];
  }

  radius(k) {
    return this.sizes[k] * Math.min(2.2, this.view.zoom ** 0.3);
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.unit;
    this.view.zoom = Math.min(60, Math.max(0.8, this.view.zoom * factor));
    const change = 1 / before - 1 / this.unit;
    this.view.x += (x - this.width / 2) * change;
    this.view.y += (y - this.height / 2) * change;
    this.redraw();
  }

  pan(x, y) {
    this.view.x = Math.min(1.2, Math.max(-0.2, this.view.x - x / this.unit));
    this.view.y = Math.min(1.2, Math.max(-0.2, this.view.y - y / this.unit));
    this.redraw();
  }

  show(k) {
    Object.assign(this.view, { x: this.across[k], y: this.up[k], zoom: Math.max(this.view.zoom, 4) });
    this.redraw();
  }

  // The item under a place of the screen, or null.
  at(x, y, reach = 8) {
    const left = (x - this.width / 2) / this.unit + this.view.x;
    const top = (y - this.height / 2) / this.unit + this.view.y;
    const margin = (reach + 22) / this.unit;
    let best = null;
    let least = Infinity;
    for (const k of this.within(left - margin, top - margin, left + margin, top + margin)) {
      const [kx, ky] = this.screen(k);
      const distance = Math.hypot(kx - x, ky - y) - this.radius(k);
      if (distance < reach && distance < least) [best, least] = [k, distance];
    }
    return best;
  }

  *within(left, top, right, bottom) {
    const bound = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(value * CELLS)));
    for (let row = bound(top); row <= bound(bottom); row++) {
      for (let column = bound(left); column <= bound(right); column++) yield* this.cells[row * CELLS + column];
    }
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    if (!this.width) return;
    const pen = this.context;
    const ratio = this.canvas.width / this.width;
    this.colours ??= readColours();
    this.specks(ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.discs(pen);
    this.lines(pen);
    this.rings(pen);
    this.labels(pen);
    if (document.activeElement === this.canvas) this.cross(pen);
  }

  inView(k) {
    const [x, y] = this.screen(k);
    const size = this.radius(k);
    return x > -size && y > -size && x < this.width + size && y < this.height + size;
  }

  // If there are many, small dots are set pixel by pixel, which is many times faster than drawing paths.
  specks(ratio) {
    const { width, height } = this.canvas;
    if (this.image?.width !== width || this.image.height !== height) this.image = this.context.createImageData(width, height);
    const pixels = new Uint32Array(this.image.data.buffer);
    pixels.fill(this.colours.ground);
    const seen = [];
    for (let k = this.data.n - 1; k >= 0; k--) if (this.inView(k)) seen.push(k);
    const least = seen.length > MANY ? LARGE : 0;
    this.large = [];
    for (const k of seen) {
      const size = this.radius(k);
      if (size >= least) this.large.push(k);
      else {
        const [x, y] = this.screen(k);
        speck(pixels, width, height, x * ratio, y * ratio, size * ratio, this.colours.pixels[this.shades[k]]);
      }
    }
    this.context.putImageData(this.image, 0, 0);
  }

  // Large dots, above the small ones.
  discs(pen) {
    pen.globalAlpha = 0.88;
    for (const k of this.large) {
      const [x, y] = this.screen(k);
      pen.beginPath();
      pen.arc(x, y, this.radius(k), 0, 2 * Math.PI);
      pen.fillStyle = this.colours.shades[this.shades[k]];
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  lines(pen) {
    if (this.marks.chosen === null) return;
    const [x, y] = this.screen(this.marks.chosen);
    pen.strokeStyle = this.colours.ink;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.55;
    for (const k of this.marks.near) {
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(...this.screen(k));
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  rings(pen) {
    const ring = (k, style, wide, more) => {
      const [x, y] = this.screen(k);
      pen.beginPath();
      pen.arc(x, y, this.radius(k) + more, 0, 2 * Math.PI);
      pen.strokeStyle = style;
      pen.lineWidth = wide;
      pen.stroke();
    };
    for (const k of this.marks.best) ring(k, this.colours.best, 2.5, 3);
    for (const k of this.marks.mine) ring(k, this.colours.mine, 2.5, 3);
    for (const k of this.marks.near) ring(k, this.colours.ink, 1, 2);
    if (this.marks.chosen !== null) ring(this.marks.chosen, this.colours.ink, 2.5, 3);
  }

  labels(pen) {
    pen.font = '600 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
    pen.lineJoin = "round";
    const taken = [];
    const most = Math.min(MOST_LABELS, Math.round((this.width * this.height) / 24000));
    const wanted = this.marks.chosen === null ? [] : [this.marks.chosen, ...this.marks.near].slice(0, most);
    for (const k of wanted) this.label(pen, k, taken, true);
    for (let k = 0; k < this.data.n && k < 4000 && taken.length < most + wanted.length / 2; k++) this.label(pen, k, taken, false);
  }

  label(pen, k, taken, must) {
    const [x, y] = this.screen(k);
    if (x < 0 || y < 0 || x > this.width || y > this.height) return;
    const title = this.data.titles[k];
    const words = title.length > 28 ? `${title.slice(0, 27)}…` : title;
    const long = pen.measureText(words).width;
    const side = x + this.radius(k) + 4 + long > this.width ? x - this.radius(k) - 4 - long : x + this.radius(k) + 4;
    const box = [side - 3, y - 9, side + long + 3, y + 7];
    const crosses = taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
    if (crosses || (side < 0 && !must)) return;
    taken.push(box);
    pen.strokeStyle = this.colours.card;
    pen.lineWidth = 3;
    pen.strokeText(words, side, y + 4);
    pen.fillStyle = this.colours.ink;
    pen.fillText(words, side, y + 4);
  }

  cross(pen) {
    pen.strokeStyle = this.colours.ink;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(this.width / 2 - 9, this.height / 2);
    pen.lineTo(this.width / 2 + 9, this.height / 2);
    pen.moveTo(this.width / 2, this.height / 2 - 9);
    pen.lineTo(this.width / 2, this.height / 2 + 9);
    pen.stroke();
  }

  recolour() {
    this.colours = null;
    this.redraw();
  }
}

function speck(pixels, width, height, x, y, size, shade) {
  const top = Math.max(0, Math.round(y - size));
  const bottom = Math.min(height - 1, Math.round(y + size) - 1);
  for (let row = top; row <= bottom; row++) {
    const half = size < 2 ? size : Math.sqrt(Math.max(0, size * size - (row + 0.5 - y) ** 2));
    const left = Math.max(0, Math.round(x - half));
    const right = Math.min(width - 1, Math.round(x + half) - 1);
    if (right >= left) pixels.fill(shade, row * width + left, row * width + right + 1);
  }
}

function readColours() {
  const [prior, data] = [colour("prior"), colour("accent")].map(parts);
  const mixed = Array.from({ length: SHADES }, (_, k) => prior.map((value, channel) => Math.round(value + (k / (SHADES - 1)) * (data[channel] - value))));
  return {
    shades: mixed.map((channels) => `rgb(${channels.join(",")})`),
    pixels: mixed.map(pixel),
    ground: pixel(parts(colour("card"))),
    card: colour("card"),
    ink: colour("ink"),
    mine: colour("mine"),
    best: colour("best"),
  };
}

// A colour as the four bytes of a pixel, in the order of this machine.
function pixel(channels) {
  return new Uint32Array(Uint8Array.of(...channels, 255).buffer)[0];
}

function extremes(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function parts(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}
