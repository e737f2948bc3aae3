"""The engine of Helm 4 in a shared library, and its releases in a cluster."""

import base64
import ctypes
import gzip
import json
import os
import pathlib
import re
import sys
import tempfile

from dry_run_api import Cluster, DryRunApi


class Failure(Exception):
    """A failure with the text for standard error."""


class Engine:
    def __init__(self):
        self.library = ctypes.CDLL(str(pathlib.Path(sys.prefix) / "lib/libhelm_sdkpy.so"))
        self.library.helm_sdkpy_last_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_ulonglong(0)

    def connect(self, namespace, kubeconfig):
        self.library.helm_sdkpy_config_destroy(self.handle)
        empty = b""
        self.check(self.library.helm_sdkpy_config_create(
            namespace.encode(), kubeconfig.encode(), empty, empty, ctypes.byref(self.handle)))

    def connect_to(self, api, namespace):
        """Connects to a dry-run API."""
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": api.url}}], "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": namespace}}],
        }
        # The engine reads the file again at its first request, so the file exists until the process ends.
        self.file = tempfile.NamedTemporaryFile("w")
        json.dump(config, self.file)
        self.file.flush()
        self.connect(namespace, self.file.name)

    def check(self, code):
        if code:
            error = (self.library.helm_sdkpy_last_error() or b"unknown error").decode()
            raise Failure(re.sub("^[a-z]+ failed: ", "", error))  # a prefix of the library

    def call(self, function, *given):
        """Calls a function of the library, and returns its JSON or text."""
        result = ctypes.c_char_p()
        encoded = [value.encode() if isinstance(value, str) else value for value in given]
        self.check(getattr(self.library, "helm_sdkpy_" + function)(self.handle, *encoded, ctypes.byref(result)))
        text = (result.value or b"null").decode()
        return text if function == "package" else json.loads(text)

    def change(self, verb, options, values, **more):
        """Installs or upgrades a release."""
        flag = lambda name: getattr(options, name, False)
        settings = {
            "wait": flag("wait"), "wait_for_jobs": flag("wait_for_jobs"), "create_namespace": flag("create_namespace"),
            "take_ownership": flag("take_ownership"), "timeout_seconds": flag("timeout") or 300,
            # Defaults of Helm 4: an upgrade uses the apply method of the installed release.
            "server_side_apply": "auto" if verb == "upgrade" else "true", **more,
        }
        chart, version = os.path.abspath(options.chart), ""
        return self.call(verb, options.release, chart, json.dumps(values), version, json.dumps(settings))

    def dry_run(self, verb, options, values, api, **more):
        """Runs the engine until it would store the release, and returns that release."""
        self.connect_to(api, options.namespace)
        try:
            self.change(verb, options, values, wait=False, **more)
        except Failure:
            if not api.release:
                raise
        return api.release

    def render(self, options, values, **more):
        """Renders without changes. Returns the release, and the definitions of crds/."""
        assumed, verb = set(), "install"
        if more.get("cluster") and getattr(options, "is_upgrade", False):
            # Helm renders an upgrade of a pending release, too. The engine needs a release for it.
            verb, more["hide_releases"] = "upgrade", "pending"
        while True:
            api = DryRunApi(assumed=sorted(assumed), **more)
            try:
                return self.dry_run(verb, options, values, api, disable_openapi_validation=True), api.crds
            except Failure as failure:
                # `helm template` looks up no kinds in a cluster, but this engine does. Retry with the missing kinds.
                text = str(failure)
                unknown = set(re.findall(r"unable to get apiresource from unstructured: (.+?), Kind=(\w+)", text))
                for kind, version in re.findall(r'no matches for kind "(.+?)" in version "(.+?)"', text):
                    unknown.add((version, kind))
                if unknown <= assumed:
                    raise
                assumed |= unknown


def stored(options, name=None):
    """Returns the stored releases of a namespace, by name and revision."""
    selector = "owner%3Dhelm" + (f"%2Cname%3D{name}" if name else "")
    in_secrets = os.environ.get("HELM_DRIVER", "secret").startswith("secret")
    kind = "secrets" if in_secrets else "configmaps"
    path = f"/api/v1/namespaces/{options.namespace}/{kind}?labelSelector={selector}"
    code, body, _ = Cluster(options.kubeconfig).get(path, "application/json")
    answer = json.loads(body)
    if code != 200:
        raise Failure(f"query: failed to query with labels: {answer.get('message')}")
    releases = [base64.b64decode(item["data"]["release"]) for item in answer["items"]]
    releases = [base64.b64decode(release) if in_secrets else release for release in releases]
    releases = [json.loads(gzip.decompress(release)) for release in releases]
    return sorted(releases, key=lambda release: (release["name"], release["version"]))


def history(options):
    releases = stored(options, options.release)
    if not releases:
        raise Failure("release: not found")
    return releases
