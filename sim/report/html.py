"""The pieces of a page: text made safe, tables that sort, pictures inside, one style."""

import base64
import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: .86rem; margin: .6rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e3e3e3; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
table.sorts th { cursor: pointer; background: #f3f5f7; position: sticky; top: 0; }
table.sorts th:focus-visible { outline: 2px solid #0072B2; }
th[aria-sort=ascending]::after { content: " \\25B2"; font-size: .7em; }
th[aria-sort=descending]::after { content: " \\25BC"; font-size: .7em; }
.wide { overflow-x: auto; max-height: 36rem; } img { max-width: 100%; height: auto; }
.warning { background: #fdf3dc; border-left: 4px solid #E69F00; padding: .4rem .8rem;
  margin: .4rem 0; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; }
footer { color: #666; font-size: .8rem; margin-top: 3rem; }
@media print { body { margin: 0; max-width: none; } .wide { overflow: visible; max-height: none; }
  h2 { break-after: avoid; } img, tr { break-inside: avoid; }
  details > pre { white-space: pre-wrap; } }
"""

SCRIPT = """
document.querySelectorAll("table.sorts").forEach(table => {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const key = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent;
  heads.forEach((head, i) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numeric = head.classList.contains("n");
      const rows = [...body.rows].map((row, place) => [key(row, i), place, row]);
      rows.sort(([a, p], [b, q]) => {
        if (a === "" || b === "") return (a === "") - (b === "") || p - q;
        const c = numeric ? a - b : a.localeCompare(b);
        return (down ? -c : c) || p - q;
      });
      body.append(...rows.map(r => r[2]));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", e => { if (e.key === "Enter") sort(); });
  });
});
"""


def page(title: str, subtitle: str, parts: Iterable[str]) -> str:
    """A whole document; `parts` are pieces of HTML. It loads nothing from anywhere."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body>\n"
        f"<h1>{text(title)}</h1><p>{text(subtitle)}</p>\n{body}\n"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def text(value: object) -> str:
    """Any value as text that can't be read as markup."""
    return html.escape(str(value))


def heading(words: str) -> str:
    """A heading of a section."""
    return f"<h2>{text(words)}</h2>"


def warnings(sentences: Iterable[str]) -> str:
    """Warnings, each in its box."""
    return "".join(f'<p class="warning">{text(sentence)}</p>' for sentence in sentences)


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table that sorts by a click on a column's head; numbers are ordered as numbers."""
    rows = [list(row) for row in rows]
    numeric = [_is_numeric([row[i] for row in rows]) for i in range(len(names))]
    heads = "".join(
        f"<th{' class=n' if number else ''}>{text(name)}</th>"
        for name, number in zip(names, numeric, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, numeric)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table class="sorts"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values, which have no other order than their own."""
    body = "".join(f"<tr><td>{text(k)}</td><td>{text(v)}</td></tr>" for k, v in rows)
    return f"<table><tbody>{body}</tbody></table>"


def picture(png: bytes, description: str) -> str:
    """A PNG inside the page."""
    data = base64.b64encode(png).decode()
    return f'<img alt="{text(description)}" src="data:image/png;base64,{data}">'


def folded(title: str, content: str) -> str:
    """Long text behind a line to open."""
    return f"<details><summary>{text(title)}</summary><pre>{text(content)}</pre></details>"


def _cells(row: Sequence[Any], numeric: Sequence[bool]) -> str:
    return "".join(_cell(value, is_number) for value, is_number in zip(row, numeric, strict=True))


def _cell(value: Any, numeric: bool) -> str:
    if _is_absent(value):
        return f'<td{" class=n" if numeric else ""} data-v="">-</td>'
    if numeric:
        return f'<td class=n data-v="{float(value)!r}">{number(value)}</td>'
    return f"<td>{text(value)}</td>"


def number(value: float) -> str:
    """Four significant digits, whole numbers whole."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}"


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if not _is_absent(value)]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
