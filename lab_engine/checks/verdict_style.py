"""How a verdict looks: the part of the course's style sheet that it needs, and its three signs.

The verdict is text/html, so it lies inside JupyterLab's `.jp-RenderedHTMLCommon` and must outweigh that class's table
rules. The style travels with each verdict because nothing else is sure to be on the page. The tokens are those of the
playgrounds.
"""

COLOUR = {"not started": "c4", "passed": "c2", "failed": "cw"}

_SVG = '<svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">{}</svg>'
SIGN = {
    "failed": _SVG.format(
        '<path d="M6.2 1.5h7.6l4.7 4.7v7.6l-4.7 4.7H6.2L1.5 13.8V6.2z"/><path d="M7 7l6 6m0-6l-6 6"/>'
    ),
    "passed": _SVG.format('<circle cx="10" cy="10" r="8.5"/><path d="M6 10.5l3 3 5-6.5"/>'),
    "not started": _SVG.format('<circle cx="10" cy="10" r="8.5" stroke-dasharray="3 2.34"/>'),
}

STYLE = """
.nl{--nl-surface:var(--jp-layout-color1,#fff);--nl-text:var(--jp-ui-font-color1,#212121);
--nl-rule:var(--jp-border-color2,#e0e0e0);
--nl-muted:#595959;--nl-wrong:#b33a00;--nl-wrong-ink:#9c3300;--nl-c2:#008a64;--nl-c2-ink:#006a4c;--nl-c4:#474f5c;
--nl-c4-ink:#3d4551;
--nl-ui:var(--jp-ui-font-family,system-ui,sans-serif);
--nl-mono:var(--jp-code-font-family,"DejaVu Sans Mono",monospace);
--nl-t-body:400 13px/20px var(--nl-ui);--nl-t-label:400 12px/16px var(--nl-ui);
color:var(--nl-text);font:var(--nl-t-body);font-variant-numeric:tabular-nums;text-align:left}
[data-jp-theme-light="false"] .nl{--nl-muted:#b4b4b4;--nl-wrong:#f4733f;--nl-wrong-ink:#ff9a70;
--nl-c2:#1fb58a;--nl-c2-ink:#4fcfa8;--nl-c4:#c5ccd6;--nl-c4-ink:#d3d9e1}
.nl *{box-sizing:border-box}
.nl .c2{--mk:var(--nl-c2);--ink:var(--nl-c2-ink)}.nl .c4{--mk:var(--nl-c4);--ink:var(--nl-c4-ink)}
.nl .cw{--mk:var(--nl-wrong);--ink:var(--nl-wrong-ink)}
.nl .nl-verdict{background:var(--nl-surface);border:1px solid var(--nl-rule);border-left:4px solid var(--mk);
border-radius:2px;
padding:12px 16px;display:grid;grid-template-columns:20px minmax(0,1fr);gap:0 12px;margin-bottom:12px}
.nl .nl-verdict>svg{margin-top:2px;fill:none;stroke:var(--mk);stroke-width:2}
.nl .nl-verdict>div{overflow-x:auto}
.nl .nl-verdict p{margin:0;font:var(--nl-t-body)}
.nl .nl-verdict .v{font-weight:600;color:var(--ink)}
.nl .nl-verdict .n{color:var(--nl-muted)}
.nl .nl-verdict code{font:12px/20px var(--nl-mono);background:none;padding:0;color:inherit}
.nl .nl-verdict table{border-collapse:collapse;margin:8px 0;table-layout:auto;font:12px/20px var(--nl-mono);
color:var(--nl-text)}
.nl .nl-verdict tbody tr:nth-child(n),.nl .nl-verdict tbody tr:hover{background:none}
.nl .nl-verdict tr>th{font:var(--nl-t-label);color:var(--nl-muted);text-align:left;padding:2px 16px 2px 0;
white-space:nowrap;border-top:1px solid var(--nl-rule)}
.nl .nl-verdict tr>td{text-align:right;padding:2px 0 2px 12px;min-width:52px;line-height:20px;white-space:nowrap;
border-top:1px solid var(--nl-rule)}
.nl .nl-verdict tr:first-child>*{border-top:0}
.nl .nl-verdict tr>td.bad{color:var(--nl-wrong-ink);text-decoration:underline;text-decoration-thickness:2px;
text-underline-offset:3px}
.nl .nl-verdict tr>td.w{width:auto;min-width:120px;padding-left:24px;text-align:left;white-space:normal;
overflow-wrap:anywhere}
.nl .nl-verdict tr>td.line{text-align:left;white-space:normal}
.nl .nl-verdict .nl-hint{border-top:1px solid var(--nl-rule);padding-top:8px;margin-top:4px}
.nl .nl-hint b{font-weight:600}
""".strip()
