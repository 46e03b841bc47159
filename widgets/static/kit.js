// The kit: puts a picture into the shell and connects keys, stepper, presets, Present and the Python model.
// view = {draw(trace, state, width, measure) → {marks, height, label}, sentence(trace, state), count(trace, state),
//         steps?(trace, state), moving?(trace, state, width, measure, part) → marks,
//         drag?(trace, state, width, measure, {name, x, y, start: {x, y, state}}) → values | null: what a pointer sets that went
//         down on the mark with `drag: name` at `start` and is now at x, y,
//         key?(trace, state, key) → values | null: what a key in the picture sets instead of stepping, keys?: its help,
//         stepOf?(trace, state) → step, stepTo?(trace, state, step) → values: where the stepper stands and what it sets, where
//         that is no state named step, pace?: ms a step in Play, lines?: rows of the longest sentence,
//         tools?(trace, state) → [{label, key, title, values}]: buttons under the picture, always the same ones, with what
//         a click on each now sets, or null and the reason as its title}. All of them are free of the DOM.
// The model is the one place of the state. `save_changes` keeps one message in flight and lets a newer one replace
// a waiting one; nothing here waits for an answer, so the picture also moves when the kernel is busy or gone.
import { copyText, measurer, placeOf, say } from "./browser.js";
import { listenToDragging } from "./drag.js";
import { marksText, svgText } from "./marks.js";
import { clampStep, codeLine, keyAction, leaving, neighbourPreset, newValues, presetNamed, presetValues, stepAfter } from "./state.js";
import { icon, patternsHtml, sentenceHtml, shellHtml } from "./shell.js";
import { Presenter } from "./present.js";

const STEP_MS = 700;
const SWEEP_MS = 600;
const GLIDE_MS = 160;
let made = 0;

class View {
  constructor(picture, model, element) {
    this.picture = picture;
    this.model = model;
    this.spec = model.get("_spec");
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.buildShell(element);
    this.presenter = new Presenter(this.root, () => this.resize());
    this.listen();
    this.resize();
  }

  buildShell(element) {
    const id = (made += 1);
    this.root = document.createElement("div");
    this.root.className = "nl";
    this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys stay out
    ["hatch", "hatchw", "dots"].forEach((name) => this.root.style.setProperty(`--nl-${name}`, `url(#nl-${name}-${id})`));
    this.root.style.setProperty("--nl-lines", this.picture.lines ?? 1);
    this.root.innerHTML = patternsHtml(id) + shellHtml(this.spec, this.steps, this.picture.keys, this.tools);
    element.append(this.root);
    const find = (query) => this.root.querySelector(query);
    this.parts = { figure: find(".nl-pic"), state: find(".nl-state"), scrub: find(".nl-scrub"), slider: find("input"), count: find(".nl-count"), play: find(".play"), shell: find(".nl-shell") };
    this.chips = Array.from(this.root.querySelectorAll(".nl-chip"));
    this.buttons = Array.from(this.root.querySelectorAll(".nl-tools .nl-btn"));
    this.asks = Array.from(this.root.querySelectorAll("[data-ask]"));
  }

  listen() {
    this.redraw = () => this.draw();
    this.watched = [...this.spec.fields, "_trace"].map((name) => `change:${name}`).join(" ");
    this.model.on(this.watched, this.redraw);
    this.root.addEventListener("click", (event) => this.onClick(event));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.root.addEventListener("input", () => { this.pause(); this.goTo(Number(this.parts.slider.value)); });
    listenToDragging(this.parts.figure, this, (pointer) => this.drag(pointer));
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(this.parts.figure);
  }

  close() {
    this.pause();
    this.presenter.leave();
    this.resized.disconnect();
    this.model.off(this.watched, this.redraw);
    this.root.remove();
  }

  get trace() { return this.model.get("_trace"); }
  get state() { return Object.fromEntries(this.spec.fields.map((name) => [name, this.model.get(name)])); }
  get step() { return this.picture.stepOf ? this.picture.stepOf(this.trace, this.state) : this.state.step; }
  get steps() { return this.picture.steps ? this.picture.steps(this.trace, this.state) : this.trace.steps.length; }

  get tools() { return this.picture.tools?.(this.trace, this.state) ?? []; }

  // ---- state ----
  change(values) {
    const changed = newValues(this.state, leaving(this.spec, this.state, values));
    if (!Object.keys(changed).length) return;
    this.model.set(changed);
    this.model.save_changes();
  }

  goTo(step) {
    const to = clampStep(step, this.steps);
    this.change(this.picture.stepTo ? this.picture.stepTo(this.trace, this.state, to) : { step: to });
  }

  choose(name) {
    this.pause();
    this.change(presetValues(this.spec, name));
  }

  // One deliberate step: its marks glide. Dragging and key repeat never come here.
  glideTo(step) {
    const before = this.still.matches ? new Map() : this.places();
    this.goTo(step);
    this.parts.figure.querySelectorAll("rect[data-key]").forEach((element) => {
      const from = before.get(element.dataset.key);
      const to = placeOf(element);
      if (from && Object.keys(to).some((name) => from[name] !== to[name])) element.animate([from, to], { duration: GLIDE_MS, easing: "ease-out" });
    });
  }

  places() {
    return new Map(Array.from(this.parts.figure.querySelectorAll("rect[data-key]"), (element) => [element.dataset.key, placeOf(element)]));
  }

  // ---- picture ----
  // The width is read only when it may have changed: reading it after every draw would cost a layout each time.
  resize() {
    const width = Math.floor(this.parts.figure.clientWidth);
    if (width <= 0 || width === this.width) return; // 0: not on the page, or in a hidden tab
    this.width = width;
    this.draw();
  }

  draw() {
    const { state, trace, steps, width, parts } = this;
    if (!width) return;
    this.measure ??= measurer(this.root);
    const { marks, height, label } = this.picture.draw(trace, state, width, this.measure);
    parts.figure.innerHTML = svgText(marks, width, height, label);
    parts.state.innerHTML = sentenceHtml(this.picture.sentence(trace, state));
    this.chips.forEach((chip, at) => {
      const on = chip.dataset.preset === state.preset;
      chip.setAttribute("aria-checked", String(on));
      chip.tabIndex = on || (!presetNamed(this.spec, state.preset) && at === 0) ? 0 : -1;
    });
    this.asks.forEach((ask) => ask.classList.toggle("on", ask.dataset.ask === state.preset));
    this.tools.forEach((tool, at) => this.drawTool(this.buttons[at], tool));
    if (parts.slider) this.drawStepper(this.step, steps);
  }

  drawTool(button, { title, values }) {
    button.title = title;
    button.setAttribute("aria-disabled", String(!values));
    if (values) button.dataset.set = JSON.stringify(values);
    else delete button.dataset.set;
  }

  drawStepper(step, steps) {
    const { slider, scrub, count } = this.parts;
    const words = this.picture.count(this.trace, this.state);
    slider.max = steps - 1;
    slider.value = step;
    slider.setAttribute("aria-valuetext", words);
    scrub.style.setProperty("--at", `${steps > 1 ? (100 * step) / (steps - 1) : 0}%`);
    count.textContent = words;
    ["first", "previous"].forEach((action) => this.disable(action, step === 0, "this is the first step"));
    ["next", "last"].forEach((action) => this.disable(action, step === steps - 1, "this is the last step"));
  }

  disable(action, off, reason) {
    const button = this.root.querySelector(`[data-do=${action}]`);
    button.setAttribute("aria-disabled", String(off));
    button.title = off ? reason : button.getAttribute("aria-label");
  }

  // ---- play ----
  get playing() { return Boolean(this.timer); }

  play() {
    if (!this.parts.slider) return;
    this.timer = setInterval(() => this.tick(), this.picture.pace ?? STEP_MS);
    this.showPlaying();
    if (this.step >= this.steps - 1) this.goTo(0);
    else this.tick();
  }

  tick() {
    if (this.step >= this.steps - 1) return this.pause();
    this.glideTo(this.step + 1);
    if (this.picture.moving && !this.still.matches) this.sweep(performance.now());
    return undefined;
  }

  sweep(start) {
    cancelAnimationFrame(this.frame);
    const next = (now) => {
      const part = (now - start) / SWEEP_MS;
      const group = this.parts.figure.querySelector(".nl-moving");
      const shown = part < 1 && this.playing;
      group.innerHTML = shown ? marksText(this.picture.moving(this.trace, this.state, this.width, this.measure, Math.max(0, part))) : "";
      if (shown) this.frame = requestAnimationFrame(next);
    };
    this.frame = requestAnimationFrame(next);
  }

  pause() {
    if (!this.playing) return;
    clearInterval(this.timer);
    this.timer = null;
    this.showPlaying();
  }

  showPlaying() {
    const { play, state } = this.parts;
    const word = this.playing ? "pause" : "play";
    play.innerHTML = icon(word);
    play.setAttribute("aria-label", word);
    play.title = word;
    state.setAttribute("aria-live", this.playing ? "off" : "polite"); // a reader need not hear every step
  }

  // ---- hands ----
  onClick(event) {
    const { preset, set } = event.target.closest("[data-preset], [data-set]")?.dataset ?? {};
    if (preset !== undefined) this.choose(preset);
    else if (set) this.setFromPicture(JSON.parse(set));
    else this.act(event.target.closest("[data-do]")?.dataset.do, false);
  }

  setFromPicture({ step, ...values }) {
    this.pause();
    this.change(values);
    if (step !== undefined) this.goTo(step);
  }

  drag(pointer) {
    const values = this.picture.drag(this.trace, this.state, this.width, this.measure, pointer);
    if (values) this.setFromPicture(values);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const where = this.where(event.target);
    const presets = this.presenter.on && event.key.startsWith("Arrow");
    const values = (where === "picture" || where === "tools") && !presets ? this.picture.key?.(this.trace, this.state, event.key) : null;
    const action = keyAction(event.key, where, this.presenter.on);
    event.stopPropagation();
    if (!values && !action) return;
    event.preventDefault();
    if (values) this.setFromPicture(values);
    else this.act(action, event.repeat, event.target.closest(".nl-chips"));
  }

  where(target) {
    if (target === this.parts.slider) return "scrubber";
    if (target.closest(".nl-chips")) return "chips";
    if (target.closest(".nl-tools")) return "tools";
    return target.closest("button") ? "button" : "picture";
  }

  act(action, repeat, fromChips) {
    if (action === "copy") this.copy();
    else if (action === "present") this.togglePresent();
    else if (action === "leave") this.togglePresent();
    else if (action === "play") this.playing ? this.pause() : this.play();
    else if (action?.endsWith("preset")) this.choosePreset(action === "next preset" ? 1 : -1, fromChips);
    else if (action && this.parts.slider) this.stepBy(action, repeat);
  }

  stepBy(action, repeat) {
    this.pause();
    const step = stepAfter(action, this.step, this.steps);
    if (repeat) this.goTo(step);
    else this.glideTo(step);
  }

  choosePreset(by, fromChips) {
    if (!this.chips.length) return;
    this.choose(neighbourPreset(this.spec, this.state.preset, by));
    if (fromChips) this.chips.find((chip) => chip.dataset.preset === this.state.preset).focus();
  }

  togglePresent() {
    const button = this.root.querySelector("[data-do=present]");
    if (this.presenter.on) this.presenter.leave();
    else this.presenter.enter();
    button.querySelector("span").textContent = this.presenter.on ? "Leave" : "Present";
    if (!this.presenter.on) button.focus();
  }

  async copy() {
    const copied = await copyText(codeLine(this.spec, this.state), this.root);
    say(this.root.querySelector("[data-do=copy]"), copied ? "Copied" : "Copy failed", copied ? "is-done" : "is-error");
  }
}

// What anywidget calls: the returned function runs when the view goes away.
export const playground = (picture) => ({
  render({ model, el }) {
    const view = new View(picture, model, el);
    return () => view.close();
  },
});
