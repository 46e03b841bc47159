// A pointer that goes down on a mark with `drag: name` and moves. The figure keeps it, because a redraw replaces the mark.
import { pointIn } from "./state.js";

// `moved` gets {name, x, y, start: {x, y, state}} where the pointer goes down and wherever it goes; `view` has width and state.
export function listenToDragging(figure, view, moved) {
  let dragged = null;
  const placeIn = (event) => pointIn(figure.querySelector("svg").getBoundingClientRect(), view.width, event.clientX, event.clientY);
  const move = (event) => { if (event.pointerId === dragged?.pointer) moved({ ...dragged, ...placeIn(event) }); };
  const stop = (event) => {
    if (event.pointerId !== dragged?.pointer) return;
    dragged = null;
    figure.classList.remove("nl-dragging");
  };
  figure.addEventListener("pointerdown", (event) => {
    const name = event.target.closest("[data-drag]")?.dataset.drag;
    if (!name || event.button !== 0 || dragged) return;
    dragged = { pointer: event.pointerId, name, start: { ...placeIn(event), state: view.state } };
    figure.setPointerCapture(event.pointerId);
    figure.classList.add("nl-dragging");
    move(event);
  });
  figure.addEventListener("pointermove", move);
  ["pointerup", "pointercancel", "lostpointercapture"].forEach((name) => figure.addEventListener(name, stop));
}
