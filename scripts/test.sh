#!/usr/bin/env bash
# Builds banyan and runs its CPU tests; first installs what is missing (apt packages, the default model). The last line
# is ctest's own.
#
#   scripts/test.sh [CTEST-OPTION…]      e.g. scripts/test.sh -R BL-05
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_packages "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"
build all
default_model >/dev/null
exec ctest --test-dir "$BUILD_DIR" -L '^(cpu|slow)$' --no-tests=error --output-on-failure "$@"
