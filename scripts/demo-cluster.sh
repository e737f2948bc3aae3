# Functions of scripts/demo for --cluster. Meant to be sourced.

# Check the tools, the access to the cluster and the registry, and start the registry of the tests if none is given.
prepare_cluster() {
  kubectl_program=$(type -P kubectl || echo "${STEAD_TEST_KUBECTL:-}")
  [ -n "$kubectl_program" ] || die "kubectl is missing; install it (https://kubernetes.io/docs/tasks/tools) and run this again"
  have helm || [ -n "${STEAD_TEST_HELM:-}" ] ||
    die "helm is missing; install Helm 4 (https://helm.sh/docs/intro/install) and run this again"
  have helm || PATH="$(dirname "$STEAD_TEST_HELM"):$PATH"
  [ -r "$cluster" ] || die "cannot read the kubeconfig $cluster"
  local answer
  answer=$(kubectl --request-timeout 10s get --raw /version 2>&1) ||
    die "cannot reach the cluster of $cluster: $(echo "$answer" | tail -n 1)"
  [ -n "$registry" ] || [ -n "${STEAD_TEST_REGISTRY:-}" ] ||
    die "--cluster needs a registry that the cluster can pull from: use --registry HOST[:PORT]/PREFIX, or prepare the registry of the tests with: export \$(scripts/test-tools)"
}

kubectl() { "$kubectl_program" --kubeconfig "$cluster" "$@"; }

# Start the registry of the tests, which the cluster of the tests can pull from. With the image of that cluster, the
# registry also stands in for Docker Hub.
start_registry() {
  local port config=$dir/registry.yml images=${STEAD_TEST_KUBERNETES:-}/images.tar
  have curl || die "the registry of the tests needs curl; install it and run this again"
  for _ in $(seq 20); do
    port=$((20000 + RANDOM % 12000))
    cat >"$config" <<REGISTRY
version: 0.1
log: {level: warn}
http: {addr: "127.0.0.1:$port"}
storage: {filesystem: {rootdirectory: "$dir/registry"}}
REGISTRY
    OTEL_TRACES_EXPORTER=none "$STEAD_TEST_REGISTRY" serve "$config" >>"$dir/registry.log" 2>&1 &
    registry_pid=$!
    for _ in $(seq 100); do
      kill -0 "$registry_pid" 2>/dev/null || break
      # Another program can have the port, so the process must still run after the answer.
      if curl -sf "http://127.0.0.1:$port/v2/" >/dev/null && kill -0 "$registry_pid" 2>/dev/null; then
        registry=127.0.0.1:$port/acme
        [ ! -f "$images" ] || push_busybox "http://127.0.0.1:$port/v2/library/busybox" "$images"
        return
      fi
      sleep 0.1
    done
  done
  die "cannot start the registry $STEAD_TEST_REGISTRY: $(tail -n 1 "$dir/registry.log")"
}

# push_busybox URL IMAGES: push the image of the tests' cluster as library/busybox:1.36, and use it instead of Docker Hub.
push_busybox() {
  local part file digest location parts=()
  mkdir "$dir/busybox"
  tar -xf "$2" -C "$dir/busybox"
  for part in config.json layer.tar; do
    file=$dir/busybox/$part digest=sha256:$(sha256sum "$dir/busybox/$part" | cut -d ' ' -f 1)
    location=$(curl -sf -o /dev/null -D - -X POST "$1/blobs/uploads/" | sed -n 's/^Location: *//Ip' | tr -d '\r')
    curl -sf -o /dev/null -X PUT -H 'Content-Type: application/octet-stream' --data-binary "@$file" \
      "$location&digest=$digest" || die "cannot push to the registry of the tests"
    parts+=("\"digest\": \"$digest\", \"size\": $(wc -c <"$file")")
  done
  local oci=application/vnd.oci.image
  curl -sf -o /dev/null -X PUT -H "Content-Type: $oci.manifest.v1+json" --data-binary @- "$1/manifests/1.36" <<MANIFEST ||
{"schemaVersion": 2, "mediaType": "$oci.manifest.v1+json",
 "config": {"mediaType": "$oci.config.v1+json", ${parts[0]}},
 "layers": [{"mediaType": "$oci.layer.v1.tar", ${parts[1]}}]}
MANIFEST
    die "cannot push to the registry of the tests"
  mirror=(--registry-mirror "docker.io=${1%/v2/*}")
}

# Copy the programs to a directory as a release has it: `stead up` publishes the plugins in libexec.
install_programs() {
  mkdir -p "$dir/bin/libexec"
  cp "$bin/stead" "$bin/stead-runner" "$bin/stead-plugin-files" "$dir/bin/"
  cp "$bin/stead-plugin-kubernetes_manifest" "$bin/stead-plugin-helm_chart" "$dir/bin/libexec/"
  bin=$dir/bin
}

# Deploy an image, a manifest and a chart to the cluster, and change one input.
deploy_to_cluster() {
  local publisher token
  namespace=stead-demo-$(date +%s)-$$
  say "   A cluster: an image, a manifest and a chart; the runner pulls the two plugins, whose publisher it trusts"
  run stead apps sync examples/cluster --wait
  run stead installs create cluster globex --input "namespace=$namespace"
  install_id=$(stead --output json installs show globex | field id)
  token=$(stead --output json installs create-enrolment-token globex | field token)
  publisher=$(stead --output json plugins show helm_chart | field publisher)
  mkdir "$dir/globex"
  umask 077
  printf '%s' "$token" >"$dir/globex/token"
  kubectl config view --raw --flatten --minify >"$dir/globex/kubeconfig"
  umask 022
  # Jobs of this customer run without a sandbox: Helm can be in a directory of the user, which a sandbox hides.
  echo 'version = 1' >"$dir/globex/policy.toml"
  printf '\033[36m$ KUBECONFIG=kubeconfig stead-runner --mode install --pass-env KUBECONFIG --registry oci://%s …\033[0m\n' \
    "$registry"
  KUBECONFIG=$dir/globex/kubeconfig stead-runner --data "$dir/globex/data" --mode install --server "$runner_url" \
    --policy "$dir/globex/policy.toml" --server-key "$fingerprint" --token-file "$dir/globex/token" --plugin-publisher "$publisher" \
    --registry "oci://$registry" --pass-env KUBECONFIG --pass-env PATH >>"$dir/cluster-runner.log" 2>&1 &
  cluster_runner_pid=$!
  install=globex
  finish "first install"
  run stead runs show globex
  run stead installs show globex
  run kubectl --namespace "$namespace" get configmaps,deployments,pods --output wide

  say "   Change one input: the plan shows the field, and the chart starts a new pod"
  run stead installs set-inputs globex --input "text=Changed by Stead" --reason "another text"
  run stead runs watch globex --until-approval
  run stead runs show globex --plans
  finish "another text"
  run kubectl --namespace "$namespace" get configmap/page --output 'jsonpath={.data.index\.html}'

  say "   Delete the object behind Stead's back: the drift check finds it, and a deploy creates it again"
  run kubectl --namespace "$namespace" delete configmap page
  if run stead installs drift globex; then die "the drift check did not find the deleted object"; fi
  run stead installs deploy globex --reason "repair"
  finish "repair"
  deployed_to_cluster=", and image, manifest and chart for globex on $(kubectl config current-context)"
  install=acme
}

# Remove the app from the cluster, which must then not have its namespace.
leave_cluster() {
  install=globex
  run stead installs deprovision globex --reason "the contract is over"
  finish "deprovision"
  run stead runs show globex
  [ -z "$(kubectl get namespace "$namespace" --ignore-not-found --output name)" ] ||
    die "the namespace $namespace remains after the deprovision"
  install=acme
}

# Delete what the demo left in the cluster: after a failure its namespace, always the inventories in the namespace stead.
clean_cluster() {
  [ -n "$namespace" ] || return 0
  local secrets template
  kubectl delete namespace "$namespace" --ignore-not-found --wait=false >/dev/null || true
  template="{{range .items}}{{if eq (index .metadata.annotations \"stead.dev/install\") \"$install_id\"}}{{.metadata.name}} {{end}}{{end}}"
  secrets=$(kubectl --namespace stead get secrets --selector app.kubernetes.io/managed-by=stead \
    --output "go-template=$template" 2>/dev/null) || true
  # shellcheck disable=SC2086 # a list of names
  [ -z "$secrets" ] || kubectl --namespace stead delete secret $secrets >/dev/null || true
}
