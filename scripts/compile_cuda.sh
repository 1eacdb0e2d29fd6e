#!/usr/bin/env bash
# Compiles the CUDA code and nothing else, for a machine with nvcc and no GPU; first installs what the build looks for.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_packages "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"
command -v nvcc >/dev/null || die "needs nvcc (CUDA Toolkit 12.3 or newer)"
say "compiling the CUDA code in build/cuda"
cmake --preset cuda >&2
cmake --build build/cuda -j "$JOBS" --target banyan_cuda >&2
