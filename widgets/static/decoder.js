// Lab 08's bug desk: the right text beside the text of a broken decoder, then its logits length by length, then the cause.
// trace = {promptTokens, prompt: […], right: […], cases: {name: {texts, departs, differences, cause, lab, sentences}}, floor, decades};
// widgets/decoder.py makes it. A step of the playground uncovers a part: 0 the texts, 1 the logits, 2 the cause.
import { fit, line, middle, move, rect, text } from "./marks.js";
import { textColumns, textPieces } from "./token_text.js";
import { playground } from "./kit.js";

const COLUMN_GAP = 24;
const ROW_HEIGHT = 16;
const MOST_ROWS = 14;
const FIRST_ROW = 32;
const deskChart = { left: 48, top: 28, height: 96 };
const PARTS = ["1 of 3: texts", "2 of 3: logits", "3 of 3: cause"];

export const chosenCase = (trace, state) => trace.cases[state.preset] ?? Object.values(trace.cases)[0];

const rowsOf = (texts, columns) => 1 + Math.max(...textPieces(texts, columns).map(({ row }) => row));

// Rows that every text of the trace needs at this width, so that no case changes the height.
export function deskRows(trace, columns) {
  const all = [trace.right, ...Object.values(trace.cases).map(({ texts }) => texts)];
  return Math.min(MOST_ROWS, Math.max(...all.map((texts) => rowsOf([...trace.prompt, ...texts], columns))));
}

// One text under its title. `departs` is the first new token that is wrong, null where none is.
export function textColumn(trace, title, texts, departs, width, rows, measure) {
  const letter = measure("0", "m");
  const all = [...trace.prompt, ...texts];
  const first = departs === null ? all.length : trace.prompt.length + departs;
  const marks = [text(0, 12, fit(title, width, measure, "b"), "b"), line(0, 20, width, 20, "axis")];
  textPieces(all, textColumns(width, measure))
    .filter(({ row }) => row < rows)
    .forEach(({ token, row, column, string }) => {
      const [x, y, run] = [column * letter, FIRST_ROW + row * ROW_HEIGHT, Array.from(string).length * letter];
      if (token === first) marks.push(rect(x, y, run, ROW_HEIGHT, "cw fill"));
      const cls = token >= first ? "ink cw" : token < trace.prompt.length ? "mu" : "";
      const shown = token === first ? string : string.replaceAll("↵", " ");
      if (shown.trim()) marks.push(middle(x, y + ROW_HEIGHT / 2, shown, `m pre ${token === first ? "b " : ""}${cls}`));
    });
  return marks;
}

// The bar of every length: {length, x, width, y, height, wrong}. Multiples of 16 have no empty slot.
export function differenceBars(trace, differences, width) {
  const { left, top, height } = deskChart;
  const step = (width - left) / differences.length;
  return differences.map((value, at) => {
    const wrong = value > trace.floor;
    const high = wrong ? (height * Math.log10(value / trace.floor)) / trace.decades : 3;
    return { length: trace.promptTokens + at, x: left + at * step, width: step, y: top + height - high, height: high, wrong };
  });
}

// The scale is there from the first step on, the bars from the second.
export function logitsChart(trace, differences, uncovered, width, measure) {
  const title = fit("Largest error of a logit, with the right text in the cache", width, measure, "b");
  const bars = differenceBars(trace, differences, width);
  const marks = [text(0, 12, title, uncovered ? "b" : "b mu"), ...chartScale(trace, bars, width)];
  if (!uncovered) return [...marks, text(width / 2, deskChart.top + deskChart.height / 2 + 4, "the next step shows it", "c mu over")];
  bars.forEach((bar) => marks.push(rect(bar.x + 1, bar.y, bar.width - 2, bar.height, bar.wrong ? "cw fill" : "c2 solid", { title: `${bar.length} tokens` })));
  return marks;
}

function chartScale(trace, bars, width) {
  const { left, top, height } = deskChart;
  const bottom = top + height;
  const marks = [text(left - 8, bottom + 18, "tokens", "e s mu")];
  for (let decade = 0; decade <= trace.decades; decade += 1) {
    const y = bottom - (height * decade) / trace.decades;
    marks.push(line(left, y, width, y, decade ? "rule" : "axis"), middle(left - 8, y, String(Number((trace.floor * 10 ** decade).toPrecision(3))), "e s mu"));
  }
  bars.filter(({ length }) => length % 16 === 0).forEach(({ length, x, width: wide }) => {
    marks.push(line(x + wide / 2, bottom, x + wide / 2, bottom + 6, "axis"), text(x + wide / 2, bottom + 18, length, "c s b"));
  });
  return marks;
}

export function drawDesk(trace, state, width, measure) {
  const one = chosenCase(trace, state);
  const column = Math.floor((width - COLUMN_GAP) / 2);
  const rows = deskRows(trace, textColumns(column, measure));
  const chartY = FIRST_ROW + rows * ROW_HEIGHT + 16;
  const causeY = chartY + deskChart.top + deskChart.height + 44;
  const title = one.departs === null ? "Broken: the right text" : `Broken: departs at new token ${one.departs}`;
  const broken = measure(title, "b") > column ? title.replace("departs at new", "from new") : title;
  const marks = [
    ...textColumn(trace, "Right", trace.right, null, column, rows, measure),
    ...move(textColumn(trace, broken, one.texts, one.departs, column, rows, measure), column + COLUMN_GAP, 0),
    ...move(logitsChart(trace, one.differences, state.step > 0, width, measure), 0, chartY),
    ...move(state.step > 1 ? causeMarks(one, width, measure) : [text(0, 12, "The last step names the cause.", "mu")], 0, causeY),
  ];
  return { marks, height: causeY + 24, label: `Right text, broken text and error of the logits: ${one.sentences[state.step]}` };
}

function causeMarks(one, width, measure) {
  const word = `Cause (lab ${one.lab})`;
  const x = measure(word, "b") + 12;
  return [text(0, 12, word, "b"), text(x, 12, fit(one.cause, width - x, measure))];
}

export default playground({
  draw: drawDesk,
  steps: () => PARTS.length,
  sentence: (trace, state) => chosenCase(trace, state).sentences[state.step],
  count: (trace, state) => PARTS[state.step],
});
