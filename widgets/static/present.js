// Present: the playground leaves its cell, fills the window in large type, and comes back.
const STAGE_WIDTH = 900;
const MARGIN = 48;

// The scale at which a shell of this height fills a window: never smaller than in the cell.
export const stageScale = (windowWidth, windowHeight, height) =>
  Math.max(1, Math.min((windowWidth - MARGIN) / STAGE_WIDTH, (windowHeight - MARGIN) / height));

// `root` is moved whole, because its tokens and patterns belong to it. JupyterLab's panels would clip a fixed child.
export class Presenter {
  constructor(root, redraw) {
    this.root = root;
    this.shell = root.querySelector(".nl-shell");
    this.redraw = redraw;
    this.home = null;
    this.fit = this.fit.bind(this);
  }

  get on() {
    return this.home !== null;
  }

  enter() {
    if (this.on) return;
    this.home = document.createElement("div");
    this.home.style.height = `${this.root.offsetHeight}px`;
    this.root.replaceWith(this.home);
    this.behind = Array.from(document.body.children).filter((element) => !element.inert);
    this.behind.forEach((element) => { element.inert = true; });
    document.body.append(this.root);
    this.root.classList.add("nl-stage");
    this.root.setAttribute("role", "dialog");
    this.root.setAttribute("aria-label", this.shell.getAttribute("aria-label"));
    this.shell.style.width = `${STAGE_WIDTH}px`;
    this.redraw();
    this.fit();
    addEventListener("resize", this.fit);
    this.shell.focus({ preventScroll: true });
  }

  fit() {
    const height = this.shell.offsetHeight;
    const scale = stageScale(innerWidth, innerHeight, height);
    this.shell.style.transform = `scale(${scale})`;
    this.shell.style.left = `${Math.max(0, (innerWidth - STAGE_WIDTH * scale) / 2)}px`;
    this.shell.style.top = `${Math.max(0, (innerHeight - height * scale) / 2)}px`;
  }

  leave() {
    if (!this.on) return;
    removeEventListener("resize", this.fit);
    this.behind.forEach((element) => { element.inert = false; });
    this.root.classList.remove("nl-stage");
    this.root.removeAttribute("role");
    this.root.removeAttribute("aria-label");
    ["width", "transform", "left", "top"].forEach((name) => this.shell.style.removeProperty(name));
    if (this.home.isConnected) this.home.replaceWith(this.root);
    else this.root.remove();
    this.home = null;
    this.redraw();
  }
}
