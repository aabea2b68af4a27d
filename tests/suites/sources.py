"""Brings the suites here: from package registries, by their ordinary clients, in pinned versions.

Everything lies in `.suites` under the repository. What cannot be had raises `Missing`, and its suite is
skipped by name.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = pathlib.Path(os.environ.get("AEROSTAT_SUITES", ROOT / ".suites"))
SECONDS_MAX = 900

PYTHON = {"django": "5.2.8", "sqlalchemy": "2.0.44", "asyncpg": "0.31.0"}
TOOLS = ["pytest==8.4.2", "pytest-timeout==2.4.0", "psycopg[binary]==3.3.9", "distro==1.9.0", "uvloop==0.22.1"]
PGX = "github.com/jackc/pgx/v5@v5.12.0"
NODE_POSTGRES = "8.23.1"
POSTGRESQL = "postgresql-15"


class Missing(Exception):
    """Something that a suite needs cannot be had."""


def run(*command, **options):
    """Runs a package client; gives what it printed."""
    try:
        done = subprocess.run(
            [str(each) for each in command], capture_output=True, text=True, timeout=SECONDS_MAX, **options
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["failed"]
        raise Missing(f"{' '.join(map(str, command[:3]))}: {last[0]}")
    return done.stdout


def python():
    """A Python with the tools of all suites that are written in Python."""
    there = FOLDER / "venv" / "bin" / "python"
    done = FOLDER / "venv" / "tools.txt"
    if not done.exists() or done.read_text() != "\n".join(TOOLS):
        FOLDER.mkdir(exist_ok=True)
        run(sys.executable, "-m", "venv", FOLDER / "venv")
        run(there, "-m", "pip", "--quiet", "install", *TOOLS)
        done.write_text("\n".join(TOOLS))
    return there


def sdist(name):
    """The source distribution of a package, unpacked, with the package installed from it."""
    version = PYTHON[name]
    sources = FOLDER / "sources"
    folder = sources / f"{name}-{version}"
    if not (folder / "installed").exists():
        sources.mkdir(parents=True, exist_ok=True)
        archive = sources / f"{name}-{version}.tar.gz"
        if not archive.exists():
            run(python(), "-m", "pip", "--quiet", "download", "--no-deps", "--no-binary", name, "--dest", sources, f"{name}=={version}")
        unpack(archive, sources)
        run(python(), "-m", "pip", "--quiet", "install", folder)
        (folder / "installed").touch()
    return folder


def unpack(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def debian_source(package):
    """A Debian source package, by apt's own client with lists of its own: nothing in /etc is touched."""
    folder = FOLDER / "apt"
    found = sorted(folder.glob(f"src/{package}-*/configure"))
    if found:
        return found[-1].parent
    options = private_apt(folder)
    run("apt-get", *options, "update")
    shown = run("apt-cache", *options, "showsrc", package).splitlines()
    versions = [line.split()[1] for line in shown if line.startswith("Version:")]
    for version in [installed_version(package), *versions]:
        try:
            run("apt-get", *options, "source", "--download-only", f"{package}={version}", cwd=folder / "src")
            break
        except Missing as error:
            missing = error
    else:
        raise missing
    for archive in (folder / "src").glob(f"{package}_*.orig.tar.*"):
        unpack(archive, folder / "src")
    return sorted((folder / "src").glob("*/configure"))[-1].parent


def installed_version(package):
    return run("dpkg-query", "-W", "-f", "${Version}", package)


def private_apt(folder):
    """Options that make apt keep its state under `folder`, with the machine's lists as lists of sources."""
    for each in ("lists/partial", "cache/archives/partial", "src", "parts"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    for each in pathlib.Path("/etc/apt").glob("sources.list*/*.sources"):
        of_sources(each, folder / "parts")
    lists = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*.list")]
    lines = [line for each in lists if each.exists() for line in each.read_text().splitlines()]
    lines = [line.replace("deb ", "deb-src ", 1) for line in lines if line.startswith("deb ") and "debian" in line]
    (folder / "sources.list").write_text("\n".join(lines) + "\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": folder / "parts",
        "Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root",
    }  # fmt: skip
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def of_sources(path, folder):
    """The machine's own lists of Debian, but of source packages."""
    text = path.read_text()
    if "debian" in text and "deb-src" not in text:
        (folder / path.name).write_text(text.replace("Types: deb", "Types: deb-src"))


def go_module(module):
    """A module with its tests, copied from the module cache so that it can be built in."""
    folder = FOLDER / "go" / module.replace("/", "_")
    if not (folder / "go.mod").exists():
        if shutil.which("go") is None:
            raise Missing("no go here")
        scratch = FOLDER / "go" / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / "go.mod").write_text("module scratch\n")
        run("go", "mod", "download", module, cwd=scratch)
        cache = pathlib.Path(run("go", "env", "GOMODCACHE").strip())
        shutil.copytree(cache / module, folder, dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    return folder


def npm_package(name, version):
    """A folder in which the package is installed."""
    folder = FOLDER / "node"
    if not (folder / "node_modules" / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        run("npm", "--prefix", folder, "install", "--silent", "--no-audit", "--no-fund", f"{name}@{version}")
    return folder
