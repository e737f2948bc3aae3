"""Kubernetes API of one dry run: it captures the release that the engine stores, and changes nothing.

It forwards reads to the cluster of a kubeconfig. Without a cluster, it returns no objects. The engine renders a
release, checks it against the cluster, and stores it before its first change. This API rejects the request to store the
release, which ends the dry run.
"""

import base64
import gzip
import json
import re
import ssl
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

# APIs that `helm template` assumes in a cluster: version, resource and kind. A dash marks cluster scope.
KINDS = """
v1 configmaps ConfigMap; v1 secrets Secret; v1 services Service; v1 serviceaccounts ServiceAccount; v1 pods Pod
v1 endpoints Endpoints; v1 replicationcontrollers ReplicationController; v1 limitranges LimitRange
v1 resourcequotas ResourceQuota; v1 events Event; v1 persistentvolumeclaims PersistentVolumeClaim
v1 podtemplates PodTemplate; v1 namespaces Namespace -; v1 nodes Node -; v1 persistentvolumes PersistentVolume -
apps/v1 deployments Deployment; apps/v1 statefulsets StatefulSet; apps/v1 daemonsets DaemonSet
apps/v1 replicasets ReplicaSet; apps/v1 controllerrevisions ControllerRevision
batch/v1 jobs Job; batch/v1 cronjobs CronJob; events.k8s.io/v1 events Event
autoscaling/v1 horizontalpodautoscalers HorizontalPodAutoscaler
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler
networking.k8s.io/v1 ingresses Ingress; networking.k8s.io/v1 networkpolicies NetworkPolicy
networking.k8s.io/v1 ingressclasses IngressClass -; discovery.k8s.io/v1 endpointslices EndpointSlice
policy/v1 poddisruptionbudgets PodDisruptionBudget; coordination.k8s.io/v1 leases Lease
rbac.authorization.k8s.io/v1 roles Role; rbac.authorization.k8s.io/v1 rolebindings RoleBinding
rbac.authorization.k8s.io/v1 clusterroles ClusterRole -
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding -
storage.k8s.io/v1 storageclasses StorageClass -; storage.k8s.io/v1 csidrivers CSIDriver -
scheduling.k8s.io/v1 priorityclasses PriorityClass -; node.k8s.io/v1 runtimeclasses RuntimeClass -
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition -
apiregistration.k8s.io/v1 apiservices APIService -
certificates.k8s.io/v1 certificatesigningrequests CertificateSigningRequest -
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration -
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration -
"""
DISCOVERY = re.compile(r"/version|/apis?(/v1|/[^/]+/[^/]+|/[^/]+)?")


def failure(code, reason, message):
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return code, {**status, "reason": reason, "message": message}


class Cluster:
    """The API server of a kubeconfig with a token or a client certificate."""

    def __init__(self, kubeconfig):
        with open(kubeconfig) as file:
            config = yaml.safe_load(file)
        entry = lambda kind, name: next(entry[kind] for entry in config[kind + "s"] if entry["name"] == name)
        context = entry("context", config["current-context"])
        cluster, self.user = entry("cluster", context["cluster"]), entry("user", context["user"])
        if unknown := self.user.keys() & {"exec", "auth-provider", "username"}:
            raise ValueError(f"cannot use {kubeconfig}: {unknown} is not supported; use a token or a certificate")
        self.server = cluster["server"].rstrip("/")
        self.tls = ssl.create_default_context(cadata=self.text(cluster, "certificate-authority"))
        if certificate := self.text(self.user, "client-certificate"):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(certificate + self.text(self.user, "client-key"))
                file.flush()
                self.tls.load_cert_chain(file.name)

    @staticmethod
    def text(section, key):
        if key + "-data" in section:
            return base64.b64decode(section[key + "-data"]).decode()
        if key in section:
            with open(section[key]) as file:
                return file.read()
        return None

    def get(self, path, accept):
        request = urllib.request.Request(self.server + path, headers={"Accept": accept or "application/json"})
        token = self.user.get("token")
        if "tokenFile" in self.user:
            with open(self.user["tokenFile"]) as file:
                token = file.read().strip()
        if token:
            request.add_header("Authorization", "Bearer " + token)
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=30) as response:
                return response.status, response.read(), response.headers["Content-Type"]
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers["Content-Type"]


class DryRunApi:
    """Listens on a loopback port until the process ends."""

    def __init__(self, cluster=None, hide_releases=True, kube_version="v1.36.0", api_versions=(), assumed=()):
        self.cluster, self.hide_releases, self.kube_version = cluster, hide_releases, kube_version
        self.release, self.crds, self.kinds, self.discoveries = None, [], {}, 0
        self.assumed = list(assumed)
        for entry in re.split(r"[;\n]", KINDS.strip()):
            self.add_kind(*entry.split())
        for version in api_versions:
            # GROUP/VERSION or GROUP/VERSION/KIND, as `helm template --api-versions` takes them
            group_version, _, kind = version.rpartition("/") if re.search(r"/[A-Z]", version) else (version, "", "")
            self.kinds.setdefault(group_version, {})
            if kind:
                self.add_kind(group_version, kind.lower() + "s", kind)
        # The engine also finds the assumed kinds. The capabilities of the chart do not contain them.
        self.capabilities = set(self.kinds)
        for version, kind in assumed:
            self.add_kind(version, kind.lower() + "s", kind)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"api": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add_kind(self, version, plural, kind, scope=""):
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        self.kinds.setdefault(version, {})[plural] = {
            "name": plural, "singularName": kind.lower(), "namespaced": not scope, "kind": kind, "verbs": verbs}

    def get(self, path, accept):
        route = path.partition("?")[0]
        for plural, kind in ("secrets", "SecretList"), ("configmaps", "ConfigMapList"):
            if route.endswith("/" + plural) and "owner%3Dhelm" in path and (self.hide_releases or not self.cluster):
                found = json.loads(self.cluster.get(path, None)[1]) if self.hide_releases == "pending" else {"items": []}
                items = [item for item in found["items"] if "pending" not in item["metadata"]["labels"]["status"]]
                return 200, {"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items}
        if self.cluster and self.assumed and re.fullmatch("/apis(/[^/]+/[^/]+)?", route):
            return self.extended(route)
        if self.cluster:
            return self.cluster.get(path, accept)
        if not DISCOVERY.fullmatch(route):
            return failure(404, "NotFound", f"{route} not found")
        if route == "/version":
            major, minor = re.match(r"v?(\d+)\.(\d+)", self.kube_version).groups()
            return 200, {"major": major, "minor": minor, "gitVersion": "v" + self.kube_version.removeprefix("v")}
        if route == "/api":
            self.discoveries += 1
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if route == "/apis":
            # The engine installs crds/, discovers the capabilities for the chart, and then the kinds of rendered objects.
            is_rendered = self.discoveries > (2 if self.crds else 1)
            listed, groups = self.kinds if is_rendered else self.capabilities, {}
            for group, version in (known.split("/") for known in sorted(listed) if "/" in known):
                groups.setdefault(group, []).append({"groupVersion": f"{group}/{version}", "version": version})
            found = [{"name": name, "versions": versions, "preferredVersion": versions[0]} for name, versions in groups.items()]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
        version = re.sub("^/apis?/", "", route)
        if version not in self.kinds:
            return failure(404, "NotFound", f"{version} not found")
        resources = list(self.kinds[version].values())
        return 200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}

    def extended(self, route):
        """Kinds of the cluster, and those of the definitions that the release would install first."""
        code, body, _ = self.cluster.get(route, "application/json")
        found = json.loads(body) if code == 200 else None
        if route == "/apis":
            known = {group["name"] for group in found["groups"]}
            for version in sorted({version for version, _ in self.assumed}):
                group = version.partition("/")[0]
                entry = {"groupVersion": version, "version": version.partition("/")[2]}
                if group not in known:
                    known.add(group)
                    found["groups"].append({"name": group, "versions": [entry], "preferredVersion": entry})
            return 200, found
        version = route.removeprefix("/apis/")
        found = found or {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []}
        known = {resource["kind"] for resource in found["resources"]}
        assumed = [kind for of, kind in self.assumed if of == version and kind not in known]
        found["resources"] += [self.kinds[version][kind.lower() + "s"] for kind in assumed]
        return 200, found

    def write(self, path, body):
        if b"sh.helm.release.v1." in body and b"H4sI" in body:
            packed = re.search(rb"H4sI[A-Za-z0-9+/]+=*", body)  # gzip as base64, within protobuf
            self.release = json.loads(gzip.decompress(base64.b64decode(packed[0])))
            return failure(403, "Forbidden", "rendered")
        # A namespace, or a definition from crds/: it exists only in this response.
        item = yaml.safe_load(body)
        if item["kind"] == "CustomResourceDefinition":
            self.crds.append(dict(item))
        item["metadata"] = dict(item["metadata"], uid="0", resourceVersion="1")
        return 201, item


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api = None

    def log_message(self, *_):
        pass

    def respond(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.command == "GET":
                code, answer, *kind = self.api.get(self.path, self.headers.get("Accept"))
            else:
                code, answer, *kind = self.api.write(self.path, body)
        except Exception as error:
            (code, answer), kind = failure(500, "InternalError", f"dry run: {type(error).__name__}: {error}"), []
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind[0] if kind else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond
