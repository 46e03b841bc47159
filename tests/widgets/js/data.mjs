// data.json: a tour's data, cases that Python worked out, widths of letters. `python -m tests.widgets.javascript_data` writes it.
import { readFileSync } from "node:fs";

export const data = JSON.parse(readFileSync(new URL("data.json", import.meta.url), "utf-8"));

// Measures like the browser, in the widest common face (DejaVu Sans): advances are in parts of the size.
export function measure(string, cls = "") {
  const face = /\bm\b/.test(cls) ? "mono" : /\bb\b/.test(cls) ? "bold" : "sans";
  const size = /\bs\b/.test(cls) ? 11 : /\bbig\b/.test(cls) ? 16 : 12;
  return Array.from(string).reduce((sum, letter) => sum + (data.advances[face][letter] ?? 0.7) * size, 0);
}

// The box of a text mark: [left, top, right, bottom].
export function textBox(mark) {
  const size = /\bs\b/.test(mark.class) ? 11 : /\bbig\b/.test(mark.class) ? 16 : 12;
  const [dx, dy] = mark.shift ?? [0, 0];
  const width = measure(mark.text, mark.class);
  const left = mark.x + dx - (/\be\b/.test(mark.class) ? width : /\bc\b/.test(mark.class) ? width / 2 : 0);
  const baseline = mark.y + dy + (mark.dy ? 0.35 * size : 0);
  return [left, baseline - 0.75 * size, left + width, baseline + 0.2 * size];
}

export const overlap = (a, b) => Math.min(a[2], b[2]) - Math.max(a[0], b[0]) > 0.5 && Math.min(a[3], b[3]) - Math.max(a[1], b[1]) > 0.5;
