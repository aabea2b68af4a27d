"""Reasons of failures by what the server said: the first draft of a list of known failures."""

import re

SERVER = re.compile(
    r"psycopg\.errors\.\w+\)?:? .*|asyncpg\.exceptions\.\w+: .*|django\.db\.utils\.\w+: .*|ERROR: .*|^set-up: .*|^(?:follows from )?(?:error|code): \S+ .*"
)
RAISED = re.compile(r"[\w.]*(Error|Exception)\b *:")
ANY = re.compile(r"Error|ERROR|Exception|timeout|did not run|^\w+: ")
LEFT_OUT = re.compile(r"^\(Background on this|^HINT|^DETAIL|^\[SQL|^LINE |^\s*\^|^…$|^[\]})]*$")
REFUSED = re.compile(r"(?:^|[:)] |\w{5} )([\w\"' .,…/-]{3,70}?) (?:is|are) not supported")

# What else tells a reason; the first that matches.
REASONS = [
    (r"after a SET that was refused|unrecognized configuration parameter|invalid value for parameter|cannot be changed", "absent: settings"),
    (r"no error, where PostgreSQL says", "defect: taken though wrong"),
    (r"^(types|names): ", "defect: another type or name of a column"),
    (r"^(rows|order|tag): ", "defect: another answer"),
    (r"XX000|InternalServerError|Internal error", "defect: internal error"),
    (r"insufficient data|08P01|lost|closed unexpectedly|message has|InterfaceError|unexpected EOF", "defect: protocol"),
    (r"25P02|current transaction is aborted", "defect: follows from an error before"),
    (r"timeout|Timeout|did not run", "defect: ends late, never, or too early"),
    (r"(function|operator|aggregate|procedure)\b.* (does not exist|is not unique)", "absent: function or operator"),
    (r"type \S+ does not exist", "absent: type"),
    (r"(index|table|relation|view|schema|role|constraint|sequence|rule|trigger|cursor|portal|prepared statement|savepoint|column|database)\b.* does not exist", "defect: something is not there"),
    (r"syntax error", "absent: syntax"),
    (r"cannot change rows of view|cannot insert into view|cannot update view|cannot delete from view", "absent: views that can be changed"),
    (r"NUMERIC precision|numeric field overflow|out of range", "absent: numeric beyond 38 digits, other ranges of values"),
    (r"Error|Exception|expected|differ", "defect: another answer"),
]  # fmt: skip


def told(message):
    """The line in which the server, or else the test, says what is wrong."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip() and not LEFT_OUT.search(line.strip())]
    found = next((hit[0] for line in lines if (hit := SERVER.search(line))), None)
    found = found or next((line for line in reversed(lines) if RAISED.match(line)), None)
    return found or next((line for line in lines if ANY.search(line)), lines[-1] if lines else "")


def reason(message):
    said = told(message)
    if refused := REFUSED.search(said):
        return f"absent: {masked(refused[1].strip()).removeprefix('0A000 ')}"
    return next((name for pattern, name in REASONS if re.search(pattern, said)), "defect: other")


def masked(text):
    return re.sub(r'"[^"]*"|\'[^\']*\'|\$\d+', "…", text)


def group(message):
    """What was said, without names and values, so that it can be counted."""
    return re.sub(r"\d+", "0", masked(told(message)))[:140]
