"""What was measured, as Markdown, JSON and a plot."""

import json
import math
import statistics

OURS = "aerostat"
# The same engine in process.
EMBEDDED = "aerostat-embedded"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def medians(run, kind):
    """By query, what this engine took in ms; only queries with a result."""
    return {query["id"]: statistics.median(query["peers"][kind]["ms"])
            for query in run["queries"] if query["peers"][kind].get("ms")}


def ratios(run, kind, ours=OURS):
    """By query that both have run, how many times as fast as this engine ours is: the node, unless it is said."""
    ours, theirs = medians(run, ours), medians(run, kind)
    return {id: theirs[id] / ours[id] for id in ours if id in theirs}


def cell(measured, ours):
    """`ms (ratio)`, with a mark where the result is another, or a dash where there is none."""
    if not measured.get("ms"):
        return "–"
    ms = statistics.median(measured["ms"])
    ratio = f" ({ms / ours:.2f})" if ours else ""
    return f"{ms:,.1f}{ratio}{' ≠' if measured.get('difference') else ''}"


def markdown(run, kinds):
    """The table of one number of threads and what is to be said about it."""
    peers = [kind for kind in kinds if kind != OURS]
    ours = medians(run, OURS)
    lines = [f"### {run['what']}, {run['threads']} thread{'s' if run['threads'] > 1 else ''}", ""]
    lines += ["Milliseconds, in brackets how many times as long as Aerostat's; `–` no result, `≠` another result.", ""]
    lines.append("| query | " + " | ".join([OURS, *peers]) + " |")
    lines.append("|---" * (len(peers) + 2) + "|")
    for query in run["queries"]:
        own = ours.get(query["id"])
        cells = [cell(query["peers"][OURS], None)] + [cell(query["peers"][kind], own) for kind in peers]
        lines.append(f"| {query['id']} | " + " | ".join(cells) + " |")
    means = [f"{geometric_mean(list(ours.values())):,.1f}"]
    worst = [""]
    for kind in peers:
        each = ratios(run, kind)
        mean = geometric_mean(list(medians(run, kind).values()))
        means.append(f"{mean:,.1f} ({geometric_mean(list(each.values())):.2f})")
        worst.append(least_of(each))
    lines.append("| geometric mean | " + " | ".join(means) + " |")
    lines.append("| least ratio | " + " | ".join(worst) + " |")
    if EMBEDDED in peers:
        lines.append(f"| geometric mean of ratios to {EMBEDDED} |" + beside_embedded(run, peers, mean_of))
        lines.append(f"| least ratio to {EMBEDDED} |" + beside_embedded(run, peers, least_of))
    if (total := len(run["queries"])) != (done := len(ours)):
        lines += ["", f"**Aerostat ran {done} of {total} queries.**"]
    lines += ["", *notes(run, kinds)]
    return "\n".join(lines) + "\n"


def mean_of(each):
    return f"{geometric_mean(list(each.values())):.2f}" if each else "–"


def least_of(each):
    least = min(each, key=each.get, default=None)
    return f"{each[least]:.2f} ({least})" if least else "–"


def beside_embedded(run, peers, told):
    """The cells of a line that tells something of ratios to our engine in process."""
    cells = ["" if kind == EMBEDDED else told(ratios(run, kind, EMBEDDED)) for kind in [OURS, *peers]]
    return " " + " | ".join(cells) + " |"


def notes(run, kinds):
    """What could not be compared, what could not be run and what differed, by engine."""
    for query in run["queries"]:
        if (used := query["reference"]) != run["reference"]:
            instead = f"the others are compared with {used}" if len(answered(query)) > 1 else "nobody's is compared"
            yield f"- {run['reference']} has no result of {query['id']}: {instead}"
    for kind in kinds:
        for query in run["queries"]:
            measured = query["peers"][kind]
            if "error" in measured:
                yield f"- {kind} cannot run {query['id']}: {' '.join(measured['error'].split())[:160]}"
            elif measured.get("difference"):
                yield f"- {kind} differs in {query['id']} from {query['reference']}: {measured['difference'][:160]}"


def answered(query):
    """Who has a result."""
    return [kind for kind, measured in query["peers"].items() if measured.get("ms")]


def summary(run, kinds):
    """A line per engine: geometric mean of the ratios, the worst, right results."""
    for kind in kinds:
        each = ratios(run, kind)
        right = sum(kind in answered(query) and not query["peers"][kind].get("difference")
                    for query in run["queries"] if query["reference"] == run["reference"])
        text = f"{kind:<17} {right:>3} of {len(run['queries'])} as {run['reference']}"
        if kind != OURS and each:
            text += f", ratio {mean_of(each)}, least {least_of(each)}"
        if kind not in (OURS, EMBEDDED) and EMBEDDED in kinds:
            each = ratios(run, kind, EMBEDDED)
            text += f"; to {EMBEDDED} {mean_of(each)}, least {least_of(each)}"
        yield text


def save(results, path):
    path.write_text(json.dumps(results, indent=1))


def plot(run, kinds, path):
    """Ratios by query, one bar per engine, on a logarithmic scale from 1; to the right the node is faster."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    peers = [kind for kind in kinds if kind != OURS]
    ids = [query["id"] for query in run["queries"]]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.13 * len(ids) * len(peers)))
    height = 0.8 / max(len(peers), 1)
    for at, kind in enumerate(peers):
        each = ratios(run, kind)
        places = [index + at * height for index, id in enumerate(ids) if id in each]
        axes.barh(places, [each[id] - 1 for id in ids if id in each], height, label=kind, left=1)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(ids))], ids, fontsize=7)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlabel("times as long as Aerostat")
    axes.set_title(f"{run['what']}, threads: {run['threads']}")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
