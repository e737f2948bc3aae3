# Functions of scripts/test-tools and of the scripts below tests/tools. Meant to be sourced.

log() { printf '%s\n' "$*" >&2; }
fail() { log "$(basename "$0"): $*"; exit 1; }

# Print a progress line with the seconds since $1.
log_duration() { log "  $2: $(($(date +%s) - $1)) s"; }

# Install the packages whose command or file is missing: need COMMAND_OR_FILE PACKAGE ...
need() {
  local missing=() what package started
  while [ $# -gt 0 ]; do
    what=$1 package=$2
    shift 2
    case $what in
      /*) [ -e "$what" ] ;;
      *) command -v "$what" >/dev/null ;;
    esac || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local install="apt-get install --no-install-recommends ${missing[*]}"
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "cannot install packages: this needs root on Debian; run: $install"
  started=$(date +%s)
  DEBIAN_FRONTEND=noninteractive $install -qq -y >/dev/null 2>&1 || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $install -qq -y >/dev/null
  } || fail "cannot install packages: apt-get failed; run: $install"
  log_duration "$started" "installed ${missing[*]}"
}

# Download packages of any Debian suite without changes to the APT configuration and lists of this machine.
# private_apt DIR SUITE [KIND] creates the state below DIR. Then `debian DIR ARGUMENT...` calls apt-get with that state.
# KIND deb-src also enables source packages.
private_apt() {
  local state=$1 suite=$2 archive keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e $keyring ] || fail "cannot verify packages: $keyring is missing; run: apt-get install debian-archive-keyring"
  archive=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    awk '$2 == "bookworm" && !found++ { print $1 }')
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/none"
  : >"$state/status" # no package counts as installed
  for kind in deb ${3:-}; do
    echo "$kind [signed-by=$keyring] ${archive:-http://deb.debian.org/debian} $suite main"
  done >"$state/sources.list"
  cat >"$state/apt.conf" <<X
Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "$state/none";
Dir::Etc::preferencesparts "$state/none";
Dir::State::lists "$state/lists";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
X
  debian "$state" update || fail "cannot read the package lists of Debian $suite: apt-get failed; check the network"
}
debian() {
  local state=$1
  shift
  APT_CONFIG=$state/apt.conf apt-get -qq "$@" >/dev/null
}
# Download and unpack packages, installing nothing: unpack DIR ROOT PACKAGE...
unpack() {
  local state=$1 root=$2
  shift 2
  mkdir -p "$root" "$state/debs"
  (cd "$state/debs" && debian "$state" download "$@") || fail "cannot download $*: apt-get failed; check the network"
  for deb in "$state"/debs/*.deb; do dpkg -x "$deb" "$root"; done
  rm -r "$state/debs"
}
