// Marks are plain objects, one for each SVG element. Geometry returns them, `svgText` writes them down.
// A mark's `class` holds its hue (c1 … c4, ca accent, cw wrong) and its job (fill, solid, hatch, sel, …); nl.css draws it.

export const rect = (x, y, width, height, cls = "", more = {}) => ({ tag: "rect", x, y, width, height, class: cls, ...more });
export const line = (x1, y1, x2, y2, cls = "rule", more = {}) => ({ tag: "line", x1, y1, x2, y2, class: cls, ...more });
export const path = (d, cls = "", more = {}) => ({ tag: "path", d, class: cls, ...more });
export const circle = (cx, cy, r, cls = "", more = {}) => ({ tag: "circle", cx, cy, r, class: cls, ...more });

// Text stands on its baseline y; with `middle` it is centred on y. Classes: s small, big, m monospace, b bold, e end, c centre.
export const text = (x, y, string, cls = "", more = {}) => ({ tag: "text", x, y, text: String(string), class: cls, ...more });
export const middle = (x, y, string, cls = "", more = {}) => text(x, y, string, cls, { dy: ".35em", ...more });

// The accent tag with its text: "here".
export function tag(x, y, string, measure, width = Math.ceil(measure(string, "s b")) + 14) {
  return [rect(x, y, width, 20, "tag"), middle(x + width / 2, y + 10, string, "c ontag s b")];
}

// The size in px that nl.css gives a text of these classes.
export const fontSize = (cls) => (/\bs\b/.test(cls) ? 11 : /\bbig\b/.test(cls) ? 16 : 12);

// The string if it fits into `room` px, else its longest beginning that does, with an ellipsis.
export function fit(string, room, measure, cls = "") {
  if (measure(string, cls) <= room) return string;
  const letters = Array.from(string);
  while (letters.length && measure(letters.join("") + "…", cls) > room) letters.pop();
  return letters.join("") + "…";
}

// The string in rows of at most `room` px, broken at its spaces.
export function wrap(string, room, measure, cls = "") {
  const rows = [];
  string.split(" ").forEach((word) => {
    const longer = rows.length ? `${rows.at(-1)} ${word}` : word;
    if (rows.length && measure(longer, cls) <= room) rows[rows.length - 1] = longer;
    else rows.push(word);
  });
  return rows;
}

// A whole number with a real minus, and one of so many bytes with all its digits: 0xFA4DB871. As in widgets/words.py.
export const signed = (value) => String(value).replace("-", "−");
export const hexWord = (value, size = 4) => `0x${value.toString(16).toUpperCase().padStart(2 * size, "0")}`;

// A whole number with commas between its thousands, as Python's format `,` writes it.
export const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

// The map from [d0, d1] onto [r0, r1].
export const linear = (d0, d1, r0, r1) => (value) => r0 + ((value - d0) / (d1 - d0)) * (r1 - r0);

// A number for a person: fixed digits, half rounded up as in widgets/words.py, a real minus.
export const number = (value, digits = 0) => (Math.floor(value * 10 ** digits + 0.5) / 10 ** digits).toFixed(digits).replace("-", "−");

// Shares as percents: "0 %" means nothing at all, "< 1 %" very little.
export function percent(share, digits = 0) {
  const least = 10 ** -digits;
  if (share === 0) return "0 %";
  return share > 0 && share < least / 200 ? `< ${least.toFixed(digits)} %` : `${number(100 * share, digits)} %`;
}

// A number of any size with so many significant digits: 0.2813, 65714, 5.960e−8. Half is rounded up as in widgets/words.py.
export function significant(value, digits = 3) {
  const [mantissa, exponent] = Math.abs(value).toExponential(digits - 1).split("e");
  const plain = exponent >= digits ? Math.abs(value).toFixed(0) : Number(`${mantissa}e${exponent}`).toFixed(Math.max(0, digits - 1 - exponent));
  const size = exponent < -4 || exponent > 5 ? `${mantissa}e${String(Number(exponent)).replace("-", "−")}` : plain;
  return value === 0 ? "0" : (value < 0 ? "−" : "") + size;
}

export const move = (marks, dx, dy) => marks.map((mark) => ({ ...mark, shift: [dx + (mark.shift?.[0] ?? 0), dy + (mark.shift?.[1] ?? 0)] }));

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
export const escapeText = (string) => String(string).replace(/[&<>"']/g, (letter) => escapes[letter]);

// `key` names a mark that glides to its next place, `set` what a click on it sets, `drag` the name of the handle that it
// is for a pointer, `title` its tooltip.
function markText({ tag: element, text: string, key, set, drag, title, shift, ...attributes }) {
  const all = { ...attributes };
  if (drag) all["data-drag"] = drag;
  if (key) all["data-key"] = key;
  if (set) all["data-set"] = JSON.stringify(set);
  if (shift) all.transform = `translate(${shift[0]} ${shift[1]})`;
  const written = Object.entries(all).map(([name, value]) => ` ${name}="${escapeText(value)}"`).join("");
  const inside = (title ? `<title>${escapeText(title)}</title>` : "") + (string === undefined ? "" : escapeText(string));
  return `<${element}${written}>${inside}</${element}>`;
}

export const marksText = (marks) => marks.map(markText).join("");

export function svgText(marks, width, height, label) {
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return `<svg ${size} role="img" aria-label="${escapeText(label)}">${marksText(marks)}<g class="nl-moving"></g></svg>`;
}
