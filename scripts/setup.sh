#!/usr/bin/env bash
# Installs what a build needs, and only what is missing: Debian packages, .venv with the pinned libggml and libllama,
# and the headers of libllama-common. A second run finds everything in place and takes a fraction of a second.
#   setup.sh              for make build, demo and test
#   setup.sh --dev        also clang, clang-tidy and the fuzzer's run time
#   setup.sh --tsan       also .venv-tsan: the libraries without OpenMP, instrumented by ThreadSanitizer
#   setup.sh --portable   also .venv-portable: every CPU variant, chosen at run time (for packages)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

PYTHON=/usr/bin/python3  # Debian's own: the one python3-venv and python3-dev belong to
PIP_QUIET=(--disable-pip-version-check --no-input --retries 2)

check_platform() {
  [ "$(uname -s)" = Linux ] ||
    fail "$(uname -s) is not supported: Rhapsode builds on Debian 12 and Ubuntu 24.04 (x86-64); use one of them, or a container or virtual machine with one."
  [ "$(uname -m)" = x86_64 ] ||
    fail "The processor architecture $(uname -m) is not supported: Rhapsode builds on x86-64."
  local id=unknown version=unknown
  if [ -r "${RHAPSODE_OS_RELEASE:-/etc/os-release}" ]; then
    id=$(. "${RHAPSODE_OS_RELEASE:-/etc/os-release}" && echo "${ID:-unknown}")
    version=$(. "${RHAPSODE_OS_RELEASE:-/etc/os-release}" && echo "${VERSION_ID:-unknown}")
  fi
  case "$id-$version" in
    debian-12 | ubuntu-24.04) ;;
    *) fail "$id $version is not supported: Rhapsode builds on Debian 12 and Ubuntu 24.04; elsewhere install what scripts/packages.txt names (GCC 12 or newer, CMake 3.22 or newer) and set RHAPSODE_ANY_PLATFORM=1 to try." ;;
  esac
}

missing_packages() {  # KINDS (a regular expression)
  local wanted
  wanted=$(awk -v kinds="^($1)\$" '!/^#/ && $2 ~ kinds { print $1 }' scripts/packages.txt)
  if ! command -v dpkg-query >/dev/null; then return 0; fi
  local have
  # shellcheck disable=SC2086
  have=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null | awk '/^ii/ { print $2 }' || true)
  comm -23 <(sort <<<"$wanted") <(sort -u <<<"$have")
}

install_packages() {
  local missing as_root=()
  missing=$(missing_packages "$1" | tr '\n' ' ')
  missing=${missing% }
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "Debian packages are missing and there is no sudo: run 'apt-get install $missing' as root, then the same command again."
    sudo -n true 2>/dev/null || [ -t 0 ] || fail "Debian packages are missing and sudo asks for a password: run 'sudo apt-get install $missing', then the same command again."
    sudo -v || fail "Debian packages are missing and sudo refused: run 'apt-get install $missing' as root, then the same command again."
    as_root=(sudo)
  fi
  need_space /usr 1500 "the Debian packages"
  say "  Debian packages to install: $missing"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=2 -o DPkg::Lock::Timeout=120 install -y --no-install-recommends)
  # Old package lists name files that the mirror no longer has, so they are refreshed when any package is unknown or gone.
  # shellcheck disable=SC2086
  if ! "${install[@]}" --download-only $missing >/dev/null 2>&1; then
    run_step "Refreshing the package lists" "${as_root[@]}" apt-get -o Acquire::Retries=2 -o APT::Update::Error-Mode=any update
  fi
  # shellcheck disable=SC2086
  run_step "Installing Debian packages" "${install[@]}" $missing
}

# What decides the bytes of a built variant: pins, arguments, compiler, and for native code the CPU.
variant_key() {  # CMAKE_ARGS
  {
    cat requirements.txt requirements-build.txt
    echo "$1"
    g++ -dumpfullversion
    "$PYTHON" --version
    case $1 in *GGML_NATIVE=ON*) grep -m 1 '^flags' /proc/cpuinfo ;; esac
  } | sha256sum | cut -c 1-16
}

make_venv() {  # FOLDER
  [ -x "$1/bin/python" ] && return 0
  rm -rf "$1"
  run_step "Creating $1" "$PYTHON" -m venv "$1"
}

fetch_source() {  # into .deps/sdist, verified against the pinned hash by pip
  run_step "Fetching the build back end" .venv/bin/pip install "${PIP_QUIET[@]}" --no-deps --require-hashes -r requirements-build.txt
  [ -f .deps/sdist/complete ] && return 0
  rm -rf .deps/sdist
  run_step "Fetching the source of llama.cpp" .venv/bin/pip download "${PIP_QUIET[@]}" --no-cache-dir --no-deps \
    --no-build-isolation --no-binary :all: --require-hashes -r requirements.txt -d .deps/sdist
  touch .deps/sdist/complete
}

# The wheels do not carry the headers of common/, though they carry its library.
extract_common_headers() {
  local stamp=.deps/llama-common/.from archive
  archive=$(ls .deps/sdist/*.tar.gz)
  [ "$(cat "$stamp" 2>/dev/null)" = "$(basename "$archive")" ] && return 0
  rm -rf .deps/llama-common .deps/llama-common.new
  mkdir -p .deps/llama-common.new
  tar -xzf "$archive" -C .deps/llama-common.new --strip-components=4 --wildcards \
    '*/vendor/llama.cpp/common/*.h' || fail "The source archive $archive has no common/ headers: delete .deps and run the same command again."
  basename "$archive" >.deps/llama-common.new/.from
  mv .deps/llama-common.new .deps/llama-common
}

build_wheel() {  # NAME CMAKE_ARGS FOLDER
  local work=.deps/build-$1 archive
  need_writable "$3"
  need_space "$RHAPSODE_ROOT" 3000 "building ggml and llama"
  archive=$(ls .deps/sdist/*.tar.gz)
  # An interrupted build goes on where it was, as long as it is the same one.
  if [ "$(cat "$work/.args" 2>/dev/null)" != "$archive $2" ]; then
    rm -rf "$work"
    mkdir -p "$work/source"
    tar -xzf "$archive" -C "$work/source" --strip-components=1
    echo "$archive $2" >"$work/.args"
  fi
  run_step "Building ggml and llama ($1; 3 minutes on 2 cores, 14 for portable)" env CMAKE_ARGS="$2" \
    CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-$(nproc)}" .venv/bin/pip wheel -v "${PIP_QUIET[@]}" --no-cache-dir --no-deps \
    --no-build-isolation --config-settings=build-dir="$RHAPSODE_ROOT/$work/build" -w "$work/wheel" "./$work/source"
  mv "$work"/wheel/*.whl "$3/"
  rm -rf "$work"
}

# Builds one variant of the libraries into its own environment. Built wheels are kept, so another clone is quick.
install_variant() {  # NAME VENV ARGS
  local key stamp wheels
  key=$(variant_key "$3")
  stamp=$2/.rhapsode-stamp
  [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && [ -d .deps/llama-common ] && return 0
  need_writable "$RHAPSODE_ROOT/.deps"
  make_venv .venv
  make_venv "$2"
  fetch_source
  extract_common_headers
  wheels=$RHAPSODE_HOME/wheels/$key
  compgen -G "$wheels/*.whl" >/dev/null || build_wheel "$1" "$3" "$wheels"
  run_step "Installing ggml and llama ($1)" "$2/bin/pip" install "${PIP_QUIET[@]}" --no-deps --no-index --force-reinstall "$wheels"/*.whl
  place_backends "$2"
  echo "$key" >"$stamp"
}

# With back ends loaded at run time the wheel puts them in bin/; everything here looks next to libggml.
place_backends() {  # VENV
  local site
  site=$(echo "$1"/lib/python3*/site-packages)
  if compgen -G "$site/bin/libggml-*.so" >/dev/null; then cp "$site"/bin/libggml-*.so "$site/lib/"; fi
}

install_test_tools() {
  [ -f requirements-test.txt ] || return 0
  local key stamp=.venv/.rhapsode-test-stamp
  key=$(sha256sum requirements-test.txt | cut -c 1-16)
  [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return 0
  run_step "Fetching the Python packages of the tests" .venv/bin/pip install "${PIP_QUIET[@]}" --no-deps --require-hashes \
    --only-binary :all: -r requirements-test.txt
  echo "$key" >"$stamp"
}

main() {
  local kinds=base tsan= portable= option
  for option in "$@"; do
    case $option in
      --dev) kinds='base|dev' ;;
      --tsan) tsan=1 ;;
      --portable) portable=1 ;;
      *) fail "Unknown option $option: use --dev, --tsan or --portable." ;;
    esac
  done
  [ -n "${RHAPSODE_ANY_PLATFORM:-}" ] || check_platform
  need_writable "$RHAPSODE_ROOT"
  install_packages "$kinds"
  local common='-DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DCMAKE_INSTALL_RPATH=$ORIGIN'
  install_variant native .venv "$common -DGGML_NATIVE=ON"
  install_test_tools
  if [ -n "$tsan" ]; then
    install_variant tsan .venv-tsan "$common -DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DCMAKE_C_FLAGS=-fsanitize=thread -DCMAKE_CXX_FLAGS=-fsanitize=thread -DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=thread"
  fi
  if [ -n "$portable" ]; then
    install_variant portable .venv-portable "$common -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
  fi
}

main "$@"
