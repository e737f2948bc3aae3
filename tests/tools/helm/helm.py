"""Command line of `helm` for the engine of Helm 4: exactly the commands, flags and outputs that Stead uses.

Debian has no package of Helm. The engine renders and changes releases. It has no functions for `template` and
`--dry-run=server`, so these run an installation or an upgrade and stop it before its first change.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import yaml
from dry_run_api import Cluster, DryRunApi
from engine import Engine, Failure, history, stored

VERSION = "v4.3.0"


def seconds(duration):
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", duration)
    if not duration or not match:
        raise argparse.ArgumentTypeError(f'time: invalid duration "{duration}"')
    hours, minutes, rest = (int(number or 0) for number in match.groups())
    return hours * 3600 + minutes * 60 + rest


FLAGS = {
    "--kubeconfig": {"default": os.environ.get("KUBECONFIG", "")}, "--namespace": {"default": "default"},
    "--timeout": {"type": seconds, "default": 300}, "--kube-version": {"default": "v1.36.0"},
    "--values": {"action": "append", "default": []}, "--api-versions": {"action": "append", "default": []},
    "--destination": {"default": "."}, "--output": {"choices": ["json"]}, "--dry-run": {"choices": ["server"]},
    "--repo": {"default": ""}, "--version": {"default": ""},
}
WAIT = ["--wait", "--timeout"]
CHANGE = ["--namespace", "--values", "--create-namespace", *WAIT, "--wait-for-jobs", "--dry-run", "--output",
          "--take-ownership"]
COMMANDS = {
    "version": ("", ["--short"]),
    "lint": ("CHART", ["--values", "--strict"]),
    "template": ("RELEASE CHART", ["--namespace", "--values", "--include-crds", "--kube-version", "--api-versions",
                                   "--no-hooks", "--dry-run", "--is-upgrade"]),
    "install": ("RELEASE CHART", CHANGE),
    "upgrade": ("RELEASE CHART", [*CHANGE, "--install"]),
    "uninstall": ("RELEASE", ["--namespace", *WAIT]),
    "list": ("", ["--namespace", "--all", "--output"]),
    "status": ("RELEASE", ["--namespace", "--output"]),
    "history": ("RELEASE", ["--namespace", "--output"]),
    "get": ("PART RELEASE", ["--namespace"]),
    "package": ("CHART", ["--destination"]),
    "pull": ("CHART", ["--repo", "--version", "--destination"]),
}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(message)


def arguments(given):
    if "--dry-run" in given:
        raise Failure("unsupported flag: use --dry-run=server")
    parser = Parser(prog="helm", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (positional, flags) in COMMANDS.items():
        command = commands.add_parser(name, allow_abbrev=False)
        for argument in positional.split():
            parts = ["manifest", "values", "hooks", "notes"] if argument == "PART" else None
            command.add_argument(argument.lower(), choices=parts)
        for flag in ["--kubeconfig", *flags]:
            command.add_argument(flag, **FLAGS.get(flag, {"action": "store_true"}))
    options = parser.parse_args(given)
    if options.command in ("list", "status", "history") and not options.output:
        raise Failure("unsupported output: add --output json")
    # Without a kubeconfig, the engine would use the cluster of the user who runs the tests.
    if options.command not in ("version", "lint", "template", "package", "pull") and not options.kubeconfig:
        raise Failure("Kubernetes cluster unreachable: no kubeconfig")
    if "chart" in options and options.command != "pull" and not os.path.exists(options.chart):
        raise Failure(f'path "{options.chart}" not found')
    return options


def merged(low, high):
    """Merges values as Helm does: the later file wins, and null removes a default."""
    result = dict(low)
    for key, value in high.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


class ValuesLoader(yaml.SafeLoader):
    """Loader that reads a scalar with an unknown tag, such as `!!string 1`, as text, as the parser of Helm does."""


ValuesLoader.add_constructor(None, lambda loader, node: loader.construct_scalar(node))


def values_of(options):
    result = {}
    for path in options.values:
        with open(path) as file:
            content = yaml.load(file, ValuesLoader) or {}
        if not isinstance(content, dict):
            raise Failure(f"failed to parse {path}: cannot unmarshal {type(content).__name__} into a map of values")
        result = merged(result, content)
    return result


def hooks(release):
    return "".join(f"---\n# Source: {hook['path']}\n{hook['manifest']}\n" for hook in release.get("hooks") or [])


def template(engine, options):
    versions = [version for text in options.api_versions for version in text.split(",")]
    more = {"kube_version": options.kube_version, "api_versions": versions}
    if options.dry_run:
        more["cluster"] = Cluster(options.kubeconfig)
    release, crds = engine.render(options, values_of(options), **more)
    chart = release["chart"]["metadata"]["name"]
    definitions = "".join(f"---\n# Source: {chart}/crds\n{yaml.safe_dump(crd)}" for crd in crds)
    return ((definitions if options.include_crds else "") + release["manifest"].strip() + "\n"
            + ("" if options.no_hooks else hooks(release)))


def lint(engine, options):
    """The engine returns findings without texts. The text of an error is that of the failed rendering."""
    path, values, error = options.chart, values_of(options), "unknown"
    options.release, options.namespace = "test-release", "default"
    with tempfile.TemporaryDirectory() as directory:
        try:
            engine.render(options, values)
        except Failure as failure:
            error = str(failure)
        if values:  # its linter takes no values, so they become the defaults of a copy
            path = shutil.copytree(path, os.path.join(directory, "chart"))
            with open(os.path.join(path, "values.yaml"), "a+") as file:
                file.seek(0)
                defaults = yaml.load(file, ValuesLoader) or {}
                file.truncate(0)
                yaml.safe_dump(merged(defaults, values), file)
        engine.connect_to(DryRunApi(), options.namespace)
        found = engine.call("lint", path)
    failed = bool(found["Errors"])
    print(f"==> Linting {options.chart}")
    for message in found["Messages"] or []:
        severity = ["UNKNOWN", "INFO", "WARNING", "ERROR"][message["Severity"]]
        failed = failed or severity == "ERROR" or (severity == "WARNING" and options.strict)
        print(f"[{severity}] {message['Path']}: {error if severity == 'ERROR' else '(no text from the engine)'}")
    summary = f"1 chart(s) linted, {int(failed)} chart(s) failed"
    if failed:
        print()
        raise Failure(summary)
    return f"\n{summary}\n"


def change(engine, options):
    verb, values = options.command, values_of(options)
    if getattr(options, "install", False) and not stored(options, options.release):
        verb = "install"
    try:
        if options.dry_run:
            api = DryRunApi(cluster=Cluster(options.kubeconfig), hide_releases=verb == "install")
            release = engine.dry_run(verb, options, values, api, disable_openapi_validation=False)
            release["info"]["description"] = "Dry run complete"
            return release
        engine.connect(options.namespace, options.kubeconfig)
        engine.change(verb, options, values, disable_openapi_validation=False)
    except Failure as failure:
        raise Failure(f"{'INSTALLATION' if verb == 'install' else 'UPGRADE'} FAILED: {failure}")
    return history(options)[-1]


def uninstall(engine, options):
    engine.connect(options.namespace, options.kubeconfig)
    engine.call("uninstall", options.release, int(options.wait), options.timeout)
    return f'release "{options.release}" uninstalled\n'


def summary(release):
    chart = release["chart"]["metadata"]
    return {"updated": release["info"]["last_deployed"], "status": release["info"]["status"],
            "chart": f"{chart['name']}-{chart['version']}", "app_version": chart.get("appVersion", "")}


def status_text(release):
    info = release["info"]
    notes = f"NOTES:\n{info['notes'].strip()}\n" if info.get("notes") else ""
    return (f"NAME: {release['name']}\nNAMESPACE: {release['namespace']}\nSTATUS: {info['status']}\n"
            f"REVISION: {release['version']}\nDESCRIPTION: {info['description']}\n{notes}")


def part(options):
    release = history(options)[-1]
    return {
        "manifest": lambda: release["manifest"] + "\n",
        "hooks": lambda: hooks(release),
        "notes": lambda: f"NOTES:\n{release['info']['notes']}\n" if release["info"].get("notes") else "",
        "values": lambda: "USER-SUPPLIED VALUES:\n" + yaml.safe_dump(release.get("config") or {}),
    }[options.part]()


def pull(options):
    """Downloads a chart from a chart repository. The function of the engine crashes."""
    if not options.repo:
        raise Failure("unsupported chart: add --repo")
    base = options.repo.rstrip("/") + "/"
    read = lambda url: urllib.request.urlopen(url, timeout=60).read()
    found = yaml.safe_load(read(base + "index.yaml"))["entries"].get(options.chart, [])
    found = [entry for entry in found if options.version in ("", entry["version"])]
    if not found:
        raise Failure(f'chart "{options.chart}" version "{options.version}" not found in {options.repo} repository')
    url = urllib.parse.urljoin(base, found[0]["urls"][0])
    (pathlib.Path(options.destination) / url.rsplit("/", 1)[1]).write_bytes(read(url))
    return ""


def run(options):
    """Returns the output: text, or a value to print as JSON."""
    command = options.command
    if command == "version":
        return f"{VERSION}\n" if options.short else f'version.BuildInfo{{Version:"{VERSION}"}}\n'
    if command == "list":
        newest = {release["name"]: release for release in stored(options)}
        return [{"name": name, "namespace": options.namespace, "revision": str(release["version"]), **summary(release)}
                for name, release in newest.items()]
    if command == "history":
        return [{"revision": release["version"], **summary(release), "description": release["info"]["description"]}
                for release in history(options)]
    if command == "status":
        return {key: value for key, value in history(options)[-1].items() if key != "chart"}
    if command == "get":
        return part(options)
    if command == "pull":
        return pull(options)
    engine = Engine()
    if command == "package":
        engine.connect_to(DryRunApi(), "default")
        path = engine.call("package", os.path.abspath(options.chart), os.path.abspath(options.destination))
        return f"Successfully packaged chart and saved it to: {path}\n"
    if command in ("install", "upgrade"):
        release = change(engine, options)
        return release if options.output else status_text(release)
    return {"lint": lint, "template": template, "uninstall": uninstall}[command](engine, options)


if __name__ == "__main__":
    try:
        output = run(arguments(sys.argv[1:]))
        print(output if isinstance(output, str) else json.dumps(output) + "\n", end="")
    except (Failure, OSError, ValueError, KeyError, yaml.YAMLError) as failure:
        sys.exit(f"Error: {failure}")
