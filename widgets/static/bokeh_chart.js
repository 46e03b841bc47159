// Measured data to hover and zoom: a Bokeh figure in the shell that Python wrote, painted in the colours of the page.
// spec = {shell, points: [{series, x, y, said}]}; widgets/bokeh_chart.py makes it. Nothing here waits for the kernel.

const POINTS = { ArrowRight: 1, ArrowLeft: -1 };
const SERIES = { ArrowDown: 1, ArrowUp: -1 };
const WAIT_MS = 10;
const MOST_WAITS = 1000;

const within = (value, { start, end }) => Math.min(start, end) <= value && value <= Math.max(start, end);

// The places of the points that are seen, in the order of x; equal x as they are.
export function seenPoints(points, xRange, yRange) {
  const seen = Array.from(points.keys()).filter((at) => within(points[at].x, xRange) && within(points[at].y, yRange));
  return seen.sort((one, other) => points[one].x - points[other].x || one - other);
}

// The point that a key leads to, of those seen; -1 is none. Undefined: not a key of the chart.
// Left and right stay in a series; up and down go to the point of the next series whose x is nearest.
export function pointAfter(key, at, points, seen) {
  if (key === "Escape") return -1;
  if (!(key in POINTS || key in SERIES || key === "Home" || key === "End")) return undefined;
  if (!seen.length) return at;
  const order = [...new Set(seen.map((one) => points[one].series))].sort((one, other) => one - other);
  const inSeries = (series) => seen.filter((one) => points[one].series === series);
  const own = inSeries(points[at]?.series ?? order[0]);
  if (key === "Home" || (at < 0 && (POINTS[key] ?? SERIES[key]) > 0)) return own[0] ?? at;
  if (key === "End" || at < 0) return own.at(-1) ?? at;
  if (key in POINTS) return neighbour(own, at, points, POINTS[key]);
  const others = order.filter((series) => (series - points[at].series) * SERIES[key] > 0);
  if (!others.length) return at;
  const far = (one) => Math.abs(points[one].x - points[at].x);
  return inSeries(SERIES[key] > 0 ? others[0] : others.at(-1)).reduce((best, one) => (far(one) < far(best) ? one : best));
}

// The next of a series to the right or left, also from a point that a zoom has hidden.
function neighbour(own, at, points, by) {
  const behind = (one) => (points[one].x - points[at].x || one - at) * by > 0;
  const next = own.filter(behind);
  return (by > 0 ? next[0] : next.at(-1)) ?? at;
}

// A colour of a model in the form that the model has it: plain, or as the value of a mark.
export const inForm = (now, colour) => (now !== null && typeof now === "object" ? { value: colour } : colour);

// BokehJS runs once a page.
function loadBokeh(script) {
  if (globalThis.Bokeh) return;
  const element = document.createElement("script");
  element.textContent = script;
  document.head.append(element);
  element.remove();
}

// Bokeh builds its views after jupyter_bokeh's view is there, and tells nobody outside.
async function plotIn(element) {
  for (let waits = 0; waits < MOST_WAITS; waits += 1) {
    const plot = Array.from(globalThis.Bokeh.index.roots).find((view) => element.contains(view.el));
    if (plot) return plot;
    await new Promise((done) => { setTimeout(done, WAIT_MS); });
  }
  throw new Error("Bokeh drew no figure");
}

class ChartView {
  constructor(model, element) {
    this.model = model;
    this.spec = model.get("_spec");
    this.at = -1;
    this.root = document.createElement("div");
    this.root.className = "nl";
    this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys stay out
    this.root.innerHTML = this.spec.shell;
    element.append(this.root);
    this.pic = this.root.querySelector(".nl-chart");
    this.heard = this.root.querySelector("[role=status]");
    this.theme = new MutationObserver(() => this.paint());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.pic.addEventListener("blur", () => this.show(-1));
  }

  child(name) {
    return this.model.widget_manager.get_model(this.model.get(name).slice("IPY_MODEL_".length));
  }

  async mount() {
    loadBokeh((await this.child("_library")).get("script"));
    const figure = await this.child("_figure");
    figure.send = () => {}; // zooming tells the kernel nothing: it may be busy, or gone
    this.view = await this.model.widget_manager.create_view(figure);
    this.pic.append(this.view.el);
    this.plot = await plotIn(this.view.el);
    this.plot.canvas.events_el.tabIndex = -1; // the figure around it has the focus and the keys
    this.paint();
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  }

  paint() {
    const style = getComputedStyle(this.root);
    this.plot.model.references().forEach((model) => {
      (model.tags ?? []).forEach(([name, token]) => { model[name] = inForm(model[name], style.getPropertyValue(token).trim()); });
    });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    if (event.target !== this.pic || !this.plot) return;
    const { points } = this.spec;
    const next = pointAfter(event.key, this.at, points, seenPoints(points, this.plot.model.x_range, this.plot.model.y_range));
    if (next === undefined) return;
    event.preventDefault();
    this.show(next);
  }

  // A point by key: Bokeh's pointer goes to its mark, and a screen reader hears its sentence.
  show(at) {
    this.at = at;
    const point = this.spec.points[at];
    this.heard.textContent = point?.said ?? "";
    if (!this.plot) return;
    const { canvas: { events_el: area }, frame: { x_scale: x, y_scale: y } } = this.plot;
    const { left, top } = area.getBoundingClientRect();
    const place = point ? { clientX: left + x.compute(point.x), clientY: top + y.compute(point.y) } : {};
    area.dispatchEvent(new PointerEvent(point ? "pointermove" : "pointerout", { ...place, isPrimary: true, pointerType: "mouse" }));
  }

  close() {
    this.theme.disconnect();
    this.plot?.owner.clear();
    this.view?.remove();
    this.root.remove();
  }
}

export default {
  async render({ model, el }) {
    const view = new ChartView(model, el);
    await view.mount();
    return () => view.close();
  },
};
