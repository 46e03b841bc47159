// The frame around every picture: title, presets, stepper, state sentence, badge. Text in, HTML out.
import { escapeText } from "./marks.js";

const icons = {
  first: "M2 2h2v10H2zM12 2v10L5 7z",
  previous: "M10.5 2v10L3.5 7z",
  play: "M3 1.5v11L12 7z",
  pause: "M3 2h3v10H3zM8 2h3v10H8z",
  next: "M3.5 2v10L10.5 7z",
  last: "M2 2v10l7-5zM10 2h2v10h-2z",
  copy: "M4 4V1h9v9h-3v3H1V4zm1 0h5v5h2V2H5zM2 5v7h7V5z",
  present: "M1 1h5v1.5H2.5V6H1zM8 1h5v5h-1.5V2.5H8zM1 8h1.5v3.5H6V13H1zM11.5 8H13v5H8v-1.5h3.5z",
};
const badges = {
  quoted: ["M2 4h3v3.5c0 1.5-1 2.5-2.5 2.5M7.5 4h3v3.5c0 1.5-1 2.5-2.5 2.5", "quoted"],
  computed: ["M2 4.5h8M2 8h8", "computed"],
  simulated: ["M1 6c1.5-4.5 3.5-4.5 5 0s3.5 4.5 5 0", "simulated"],
  measured: ["M1 4h10v5H1zM3.5 4v2.5M6 4v2.5M8.5 4v2.5", "measured here"],
  recorded: ["M6 1.5a4.5 4.5 0 1 0 .01 0zM6 5a1 1 0 1 0 .01 0z", "recorded on H200"],
};

export const icon = (name) => `<svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true"><path fill-rule="evenodd" d="${icons[name]}"/></svg>`;

// A sentence breaks only between its parts.
export function sentenceHtml(sentence) {
  const part = (string) => (string.length < 40 ? `<span class="nl-part">${escapeText(string)}</span>` : escapeText(string));
  return `<span>${sentence.split(" · ").map(part).join(" · ")}</span>`;
}

const button = (action, label) => `<button type="button" class="nl-btn" data-do="${action}">${icon(action)}<span>${label}</span></button>`;
const stepButton = (action, label) => `<button type="button" class="nl-step ${action}" data-do="${action}" aria-label="${label}" title="${label}">${icon(action)}</button>`;
const chip = ({ name }) => `<button type="button" class="nl-chip" role="radio" aria-checked="false" data-preset="${escapeText(name)}">${escapeText(name)}</button>`;

function stepperHtml(steps) {
  if (!steps) return "";
  const names = [["first", "first step"], ["previous", "previous step"], ["play", "play"], ["next", "next step"], ["last", "last step"]];
  return `<div class="nl-stepper" role="group" aria-label="steps">${names.map(([action, label]) => stepButton(action, label)).join("")}
    <span class="nl-scrub"><input type="range" min="0" step="1" aria-label="step"></span><span class="nl-count"></span></div>`;
}

// Buttons under the picture; the kit gives each its title and what it sets, at every draw.
function toolsHtml(tools) {
  const one = ({ label, key }) => `<button type="button" class="nl-btn" aria-keyshortcuts="${escapeText(key)}"><span>${escapeText(label)}</span><kbd aria-hidden="true">${escapeText(key)}</kbd></button>`;
  return tools.length ? `<div class="nl-tools" role="toolbar" aria-label="actions">${tools.map(one).join("")}</div>` : "";
}

// All sentences lie in one place, so that the tallest gives the height and nothing jumps.
function asksHtml(spec) {
  const asks = [["", spec.ask], ...spec.presets.map((preset) => [preset.name, preset.ask])];
  return asks.map(([name, ask]) => `<span data-ask="${escapeText(name)}">${escapeText(ask)}</span>`).join("");
}

function badgeHtml({ kind, source }) {
  const [drawing, word] = badges[kind];
  return `<span class="nl-badge" title="${escapeText(source)}"><svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"><path d="${drawing}"/></svg>${word}</span>`;
}

export function shellHtml(spec, steps, keys = "arrow keys step", tools = []) {
  const title = escapeText(spec.title);
  return `<section class="nl-shell" tabindex="-1" aria-label="${title}">
    <div class="nl-head"><h3 class="nl-title">${title}</h3><span class="nl-lab">${escapeText(spec.lab)}</span><span class="nl-gap"></span>
      ${button("copy", "Copy as code")}${button("present", "Present")}</div>
    <p class="nl-ask">${asksHtml(spec)}</p>
    <div class="nl-chips" role="radiogroup" aria-label="preset">${spec.presets.map(chip).join("")}</div>
    <figure class="nl-pic" tabindex="0" aria-label="picture; ${escapeText(keys)}"></figure>
    ${toolsHtml(tools)}
    ${stepperHtml(steps)}
    <div class="nl-foot"><span class="nl-state" role="status" aria-live="polite"></span>${badgeHtml(spec.badge)}</div>
  </section>`;
}

// The hatches, under ids of this playground's own; the root's variables point at them.
export function patternsHtml(id) {
  const pattern = (name, size, turn, inside) => `<pattern id="nl-${name}-${id}" width="${size}" height="${size}" patternUnits="userSpaceOnUse" patternTransform="rotate(${turn})">${inside}</pattern>`;
  return `<svg class="nl-patterns" width="0" height="0" aria-hidden="true"><defs>
    ${pattern("hatch", 6, 45, '<path d="M0 0V6" style="stroke:var(--nl-line);stroke-width:1.5"/>')}
    ${pattern("hatchw", 5, -45, '<rect width="5" height="5" style="fill:var(--nl-wrong-tint)"/><path d="M0 0V5" style="stroke:var(--nl-wrong);stroke-width:2.5"/>')}
    ${pattern("dots", 6, 0, '<circle cx="3" cy="3" r=".9" style="fill:var(--nl-line)"/>')}
  </defs></svg>`;
}
