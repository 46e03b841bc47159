// The weights of a group on the levels of its scale, the error of each below them, and the line that one drags.
import { circle, line, linear, middle, number, rect, significant, tag, text, wrap } from "./marks.js";
import { clipAt, clipText, rounded } from "./int4_group_data.js";

const [CODES, VALUES] = [40, 92]; // px left of the columns for codes, right of them for values and the handle
const levels = { y: 28, height: 200 };
const errors = { y: 240, height: 56 };
const ERRORS_END = errors.y + errors.height;

export const levelsHeight = ERRORS_END + 28;

// Both axes of the columns: x of a weight's middle, y of a value, y of an error, px of a step of the handle (up is more).
export function groupAxes(group, width) {
  const column = (width - CODES - VALUES) / group.weights.length;
  const [top, bound] = [(Math.abs(group.reach) * 8) / 7, Math.abs(group.reach) / 7];
  const y = linear(-top, top, levels.y + levels.height, levels.y);
  const errorY = linear(-bound, bound, ERRORS_END, errors.y);
  const x = (index) => Math.floor(CODES + (index + 0.5) * column) + 0.5;
  return { column, right: width - VALUES, x, y, errorY, bound, stepHeight: (y(0) - y(group.reach)) / 100 };
}

// The weight whose column a pointer is in.
export const columnAt = (group, axes, x) => Math.max(0, Math.min(group.weights.length - 1, Math.floor((x - CODES) / axes.column)));

// The sixteen levels and their codes, as many as have room.
export function levelMarks(clip, axes) {
  const spacing = Math.abs(axes.y(clip.scale) - axes.y(0));
  const every = [1, 2, 4, 8].find((count) => count * spacing >= 12);
  const marks = [text(CODES - 8, 12, "code", "e s mu")];
  for (let code = -8; code <= 7; code += 1) {
    const y = axes.y(code * clip.scale);
    marks.push(line(CODES, y, axes.right, y, code ? "rule" : "axis"));
    if (every && (code % every === 0 || (code === 7 && every === 1))) marks.push(middle(CODES - 8, y, number(code), "e s"));
  }
  return every ? marks : [...marks, middle(CODES - (clip.scale ? 8 : 4), axes.y(0), clip.scale ? "0" : "−8…7", "e s")];
}

// Nothing can be stored beyond the outermost levels.
function beyondLevels(clip, axes) {
  const [up, down] = [axes.y(7 * clip.scale), axes.y(-8 * clip.scale)].sort((a, b) => a - b);
  const [wide, bottom] = [axes.right - CODES, levels.y + levels.height];
  return [rect(CODES, levels.y, wide, up - levels.y, "hatch"), rect(CODES, down, wide, bottom - down, "hatch")].filter(({ height }) => height >= 1);
}

function weightMarks(group, clip, axes) {
  const radius = axes.column > 3.8 ? 2 : 1.75;
  return group.weights.flatMap((weight, index) => {
    const x = axes.x(index);
    if (!clip.codes) return [circle(x, axes.y(weight), radius, "c4 solid")];
    const { code, level, cut } = rounded(group, clip, index);
    const [from, to] = [axes.y(weight), axes.y(level)];
    const stem = rect(x - 0.5, Math.min(from, to), 1, Math.abs(from - to), `${cut ? "cw" : "c4"} solid`);
    return [stem, circle(x, from, radius, cut ? "cw solid" : code ? "c4 solid" : "c4 fill")];
  });
}

// The error of each weight on an axis of one step of clip 1; a longer one ends at the frame with a cap.
export function errorMarks(group, clip, axes) {
  const zero = axes.errorY(0);
  const marks = [middle(CODES - 8, zero, "error", "e s mu"), line(CODES, zero, axes.right, zero, "axis")];
  [-0.5, 0.5].forEach((half) => marks.push(line(CODES, axes.errorY(half * clip.scale), axes.right, axes.errorY(half * clip.scale), "axis dash")));
  marks.push(middle(axes.right + 8, axes.errorY(Math.abs(clip.scale) / 2), "½ step", "s mu"));
  group.weights.forEach((_, index) => {
    const { error, cut } = rounded(group, clip, index);
    const [x, y] = [axes.x(index) - 1, Math.max(errors.y, Math.min(ERRORS_END, axes.errorY(error)))];
    marks.push(rect(x, Math.min(y, zero), 2, Math.abs(y - zero), `${cut ? "cw" : "c4"} solid`));
    if (Math.abs(error) > axes.bound) marks.push(rect(x - 1, y - 1, 4, 2, "cw solid"));
  });
  return marks;
}

// The numbers of the weights, and the chosen column from top to bottom.
function columnMarks(group, state, axes, measure) {
  const [x, y] = [axes.x(state.weight), ERRORS_END + 8];
  const wide = Math.ceil(measure(String(state.weight), "s b")) + 14;
  const left = Math.max(0, x - wide / 2);
  const marks = [rect(x - 3.5, levels.y, 7, y - levels.y, "sel"), ...tag(left, y, String(state.weight), measure, wide)];
  for (let index = 0; index < group.weights.length; index += 16)
    if (Math.abs(axes.x(index) - left - wide / 2) > wide / 2 + 14) marks.push(middle(axes.x(index), y + 10, index, "c s mu"));
  return left + wide > axes.right ? marks : [...marks, middle(axes.right + 8, y + 10, "weight", "s mu")];
}

const handleY = (group, state, axes) => axes.y((state.step / 100) * group.reach);

function handleMarks(group, state, axes, measure) {
  const y = handleY(group, state, axes);
  const signs = group.weights.some(Boolean) ? [1, 0, -1] : [0];
  const values = signs.map((sign) => sign * Math.abs(group.reach)).filter((value) => Math.abs(axes.y(value) - y) > 18);
  const marks = values.map((value) => middle(axes.right + 8, axes.y(value), significant(value), "s mu"));
  return [...marks, line(CODES, y, axes.right + 8, y, "sel"), ...tag(axes.right + 8, y - 10, `↕ clip ${clipText(state.step)}`, measure, VALUES - 8)];
}

// Where a pointer may go down: a column chooses its weight; the line and its tag are dragged.
function hitMarks(group, state, axes) {
  const y = handleY(group, state, axes);
  return [
    rect(CODES, levels.y, axes.right - CODES, levelsHeight - levels.y, "hit spot", { drag: "weight" }),
    rect(CODES, y - 7, axes.right - CODES, 14, "hit ns", { drag: "clip" }),
    rect(axes.right, y - 12, VALUES, 24, "hit ns", { drag: "clip" }),
  ];
}

// A refused group has no errors: their place says why.
function refusalMarks(group, axes, measure) {
  const rows = wrap(`refused: ${group.refusal}`, axes.right - CODES - 24, measure);
  const first = errors.y + errors.height / 2 - 8 * (rows.length - 1);
  const words = rows.map((row, at) => middle(CODES + 12, first + 16 * at, row, "ink cw"));
  return [rect(CODES, errors.y, axes.right - CODES, errors.height, "cw fill"), ...words];
}

function keyMarks(axes, measure) {
  const keys = [["c4 solid", "weight, joined to its level"], ["c4 fill", "code 0"], ["cw solid", "off by over ½ step"]];
  let x = axes.right;
  return keys.reverse().flatMap(([cls, words]) => {
    x -= measure(words, "s") + 12;
    const marks = [circle(x + 3, 8, 3, cls), text(x + 12, 12, words, "s mu")];
    x -= 16;
    return marks;
  });
}

export function weightsPanel(group, state, width, measure) {
  const [clip, axes] = [clipAt(group, state.step), groupAxes(group, width)];
  const marks = [...keyMarks(axes, measure), ...(clip.codes ? [...beyondLevels(clip, axes), ...levelMarks(clip, axes)] : [])];
  marks.push(...columnMarks(group, state, axes, measure), ...weightMarks(group, clip, axes));
  marks.push(...(clip.codes ? errorMarks(group, clip, axes) : refusalMarks(group, axes, measure)));
  return [...marks, ...handleMarks(group, state, axes, measure), ...hitMarks(group, state, axes)];
}
