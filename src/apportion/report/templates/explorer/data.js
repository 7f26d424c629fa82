// The numbers of this page: read from the block at its end. Items are in the order of released popularity.

async function inflated(text) {
  const characters = atob(text.trim());
  const bytes = new Uint8Array(characters.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = characters.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

const NUMBERS = { uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, float32: Float32Array };

async function readData(text) {
  const buffer = await inflated(text);
  const length = new DataView(buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  for (const [name, about] of Object.entries(data.arrays)) {
    const size = about.shape.reduce((product, side) => product * side, 1);
    data[name] = new NUMBERS[about.type](buffer, 4 + length + about.start, size);
  }
  data.n = data.codes.length;
  data.features = wholeNumbers(data.planes, data.steps.length * data.n);
  if (data.choice) data.choiceFeatures = wholeNumbers(data.choicePlanes, data.choice.steps.length * data.n);
  if (data.vectorPlanes) data.vectors = wholeNumbers(data.vectorPlanes, data.vectorSteps.length * data.n);
  data.positions = new Map(Array.from(data.codes, (code, position) => [code, position]));
  data.lowered = data.titles.map((title) => title.toLowerCase());
  return data;
}

// Bytes, lowest first, with the sign in the lowest bit.
function wholeNumbers(planes, size) {
  const whole = new Int32Array(size);
  for (let start = 0, shift = 0; start < planes.length; start += size, shift += 8) {
    for (let k = 0; k < size; k++) whole[k] |= planes[start + k] << shift;
  }
  for (let k = 0; k < size; k++) whole[k] = (whole[k] >>> 1) ^ -(whole[k] & 1);
  return whole;
}
