// What the state of a playground is and how keys, steps and presets change it. No DOM here.
// spec = {name, presets: [{name, ask, values}], keepsPreset, …}; state = {preset, step, …}.

export const presetNamed = (spec, name) => spec.presets.find((preset) => preset.name === name);

export const clampStep = (step, count) => Math.max(0, Math.min(count - 1, Math.round(step)));

// The values that change together when a preset is chosen.
export const presetValues = (spec, name) => ({ preset: name, ...presetNamed(spec, name).values });

// The values, and no preset where they lead away from it; presets that are scenes are moved about in.
export function leaving(spec, state, values) {
  const preset = presetNamed(spec, values.preset ?? state.preset);
  const leaves = preset && !spec.keepsPreset && Object.entries(values).some(([name, value]) => name !== "preset" && preset.values[name] !== value);
  return leaves ? { ...values, preset: "" } : values;
}

// Those of the values that differ from the state: what is worth a message and a redraw.
export const newValues = (state, values) => Object.fromEntries(Object.entries(values).filter(([name, value]) => state[name] !== value));

// Where a pointer is in a picture drawn `width` px wide, whose box on the page may be scaled by Present.
export function pointIn(box, width, clientX, clientY) {
  const scale = box.width / width;
  return { x: (clientX - box.left) / scale, y: (clientY - box.top) / scale };
}

// The name of the preset `by` places further, round the end.
export function neighbourPreset(spec, name, by) {
  const at = spec.presets.findIndex((preset) => preset.name === name);
  const from = at < 0 && by > 0 ? -1 : Math.max(at, 0);
  return spec.presets[(from + by + spec.presets.length) % spec.presets.length].name;
}

const literal = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));

// The line of Python that recreates the state: the preset, and the values that it does not set. `given` names the
// variable that the playground was made of, if any.
export function codeLine(spec, state) {
  const preset = presetNamed(spec, state.preset);
  const shown = Object.entries(state).filter(([name, value]) => {
    if (name === "preset") return Boolean(preset);
    return !preset || preset.values[name] !== value;
  });
  const named = shown.map(([name, value]) => `${name}=${literal(value)}`);
  return `${spec.name}(${[...(spec.given ? [spec.given] : []), ...named].join(", ")})`;
}

const steps = { ArrowLeft: "previous", ArrowUp: "previous", ArrowRight: "next", ArrowDown: "next", Home: "first", End: "last" };
const presets = { ArrowLeft: "previous preset", ArrowUp: "previous preset", ArrowRight: "next preset", ArrowDown: "next preset" };

// What a key does. where = "scrubber" | "chips" | "button" | "tools" | "picture"; null = the browser's own doing, if any.
export function keyAction(key, where, presenting) {
  if (key === "Escape") return presenting ? "leave" : null;
  if (key === " ") return where === "scrubber" || where === "picture" ? "play" : null;
  if (where === "scrubber") return null;
  if (where === "chips" || presenting) return presets[key] ?? steps[key] ?? null;
  return steps[key] ?? null;
}

// The step that an action leads to.
export function stepAfter(action, step, count) {
  const to = { first: 0, previous: step - 1, next: step + 1, last: count - 1 }[action];
  return clampStep(to, count);
}
