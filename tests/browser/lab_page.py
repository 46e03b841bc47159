"""What a person does in JupyterLab: open a notebook, run cells, change the theme."""

import nbformat

RUN_MS = 120_000
SESSION = "window.jupyterapp.shell.currentWidget?.sessionContext"
ERRORS = ", ".join(
    f".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("stderr", "error")
)
OPEN_INSTEAD = """async (path) => {
    const {shell, commands} = window.jupyterapp;
    const before = shell.currentWidget;
    await commands.execute('docmanager:open', {path});
    if (before !== shell.currentWidget) before?.dispose();  // without a question about unsaved cells
}"""
SETTLED = "Promise.allSettled(document.getAnimations().map((one) => one.finished)).then(() => null)"
DONE = """(errors) => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(prompt => prompt.textContent);
    const all = prompts.every(text => /\\d/.test(text)) || document.querySelector(errors);
    return all && !prompts.some(text => text.includes('*'));
}"""


def write_notebook(jupyter_lab, name, cells):
    """A notebook of code cells in the root of the server."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, jupyter_lab.root / name)


def open_notebook(page, jupyter_lab, name):
    """Open the notebook, in the JupyterLab of the page or else in a fresh one, and wait until its kernel answers."""
    if page.url.startswith(jupyter_lab.url):
        page.evaluate(OPEN_INSTEAD, name)
    else:
        page.goto(f"{jupyter_lab.url}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_function(f"{SESSION}?.session?.kernel?.status === 'idle'", timeout=60_000)


def command(page, name, **arguments):
    """Start one of JupyterLab's commands, as its menus do; some wait for a person, so nothing waits for them."""
    page.evaluate("([name, args]) => { window.jupyterapp.commands.execute(name, args); }", [name, arguments])


def run_all(page):
    """Run all cells and wait for the last one; returns what cells wrote as errors."""
    page.evaluate("window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    command(page, "notebook:run-all-cells")
    page.wait_for_function(DONE, arg=ERRORS, timeout=RUN_MS)
    return page.locator(ERRORS).all_inner_texts()


def run_code(page, source, wait=True):
    """Run Python in the notebook's kernel, as another cell would; the text it prints."""
    script = """async ([source, wait]) => {
        const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
        const future = kernel.requestExecute({code: source, store_history: false});
        let printed = '';
        future.onIOPub = ({header, content}) => {
            if (header.msg_type === 'stream') printed += content.text;
            if (header.msg_type === 'error') printed += content.ename + ': ' + content.evalue;
        };
        if (wait) await future.done;
        return printed;
    }"""
    return page.evaluate(script, [source, wait]).strip()


def settle(page):
    """Wait until colours have stopped changing: JupyterLab's styles are in the page, transitions at their end."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => null)")
    page.evaluate(SETTLED)


def use_theme(page, name):
    """Switch JupyterLab's theme in place and wait until the page has it."""
    command(page, "apputils:change-theme", theme=name)
    light = "false" if "Dark" in name else "true"
    page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")
    settle(page)
