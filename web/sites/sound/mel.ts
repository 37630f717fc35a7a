// Sound -> log-mel spectrogram, as Whisper was trained on it: 16,000 samples a second in, 100 frames out.
// As src/pteron/speech/spectrogram.py.

export const RATE = 16_000; // samples a second
export const HOP = 160; // samples
const WINDOW = 400; // samples
const BINS = WINDOW / 2 + 1;

/** The mel scale is linear below 1000 Hz and logarithmic above. */
const toMel = (hertz: number) =>
  hertz < 1000 ? (hertz * 15) / 1000 : 15 + (27 * Math.log(hertz / 1000)) / Math.log(6.4);
const toHertz = (mel: number) => (mel < 15 ? (mel * 1000) / 15 : 1000 * 6.4 ** ((mel - 15) / 27));

/** Triangles of equal width in mel and of equal area in hertz: for each band its first bin and weights. */
function filters(bands: number): { first: number; weights: number[] }[] {
  const most = toMel(RATE / 2);
  const corners = Array.from({ length: bands + 2 }, (_, at) => toHertz((most * at) / (bands + 1)));
  return Array.from({ length: bands }, (_, band) => {
    const [below, centre, above] = corners.slice(band, band + 3) as [number, number, number];
    const all = Array.from({ length: BINS }, (_, bin) => {
      const hertz = (bin * RATE) / WINDOW;
      const height = Math.min((hertz - below) / (centre - below), (above - hertz) / (above - centre));
      return (Math.max(0, height) * 2) / (above - below);
    });
    const first = Math.max(
      0,
      all.findIndex((weight) => weight > 0),
    );
    const last = all.findLastIndex((weight) => weight > 0);
    return { first, weights: all.slice(first, last + 1) };
  });
}

/** [bands, frames] of as many samples, filled with silence; 8 decades below the loudest at the least. */
export function logMel(samples: Float32Array, bands: number, frames: number): Float32Array {
  const cosines = Float64Array.from({ length: WINDOW }, (_, at) => Math.cos((2 * Math.PI * at) / WINDOW));
  const hann = cosines.map((cosine) => (1 - cosine) / 2);
  const triangles = filters(bands);
  const length = frames * HOP;
  const sample = (at: number) => {
    const inside = at < 0 ? -at : at >= length ? 2 * length - 2 - at : at; // reflected at both ends
    return inside < samples.length ? (samples[inside] as number) : 0;
  };
  const decades = new Float64Array(bands * frames).fill(-10);
  const window = new Float64Array(WINDOW);
  const power = new Float64Array(BINS);
  for (let frame = 0; frame < frames; frame++) {
    const start = frame * HOP - WINDOW / 2;
    if (start > samples.length && start + WINDOW < 2 * length - samples.length) continue; // silence
    for (let at = 0; at < WINDOW; at++) window[at] = sample(start + at) * (hann[at] as number);
    for (let bin = 0; bin < BINS; bin++) {
      let [real, imaginary] = [0, 0];
      for (let at = 0, turn = 0; at < WINDOW; at++, turn = (turn + bin) % WINDOW) {
        real += (window[at] as number) * (cosines[turn] as number);
        imaginary += (window[at] as number) * (cosines[(turn + 300) % WINDOW] as number); // a sine is a cosine, later
      }
      power[bin] = real * real + imaginary * imaginary;
    }
    triangles.forEach(({ first, weights }, band) => {
      const sum = weights.reduce((total, weight, at) => total + weight * (power[first + at] as number), 0);
      decades[band * frames + frame] = Math.log10(Math.max(sum, 1e-10));
    });
  }
  const loudest = decades.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return Float32Array.from(decades, (each) => (Math.max(each, loudest - 8) + 4) / 4);
}
