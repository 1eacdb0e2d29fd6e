#include "kernels/cuda/device.hpp"

#include <algorithm>
#include <string>

#include "banyan/error.hpp"
#include "kernels/cuda/check.hpp"

namespace banyan::kernels::cuda {
namespace {

// What a buffer that is too small grows to: at least half as much again, so that slow growth costs little.
std::int64_t grown(std::int64_t bytes, std::int64_t wanted) { return std::max(wanted, bytes + bytes / 2); }

std::string in_bytes(std::size_t n) { return std::to_string(n) + " bytes"; }

}  // namespace

int n_devices() {
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return n;
}

int open_device(int device) {
  if (const int n = n_devices(); device < 0 || device >= n) {
    throw Error(ErrorCode::usage, "CUDA device " + std::to_string(device),
                n == 0 ? "no CUDA device answers" : "there are devices 0 to " + std::to_string(n - 1));
  }
  use_device(device);
  return device;
}

void use_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

void* allocate_device(std::int64_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(1, bytes)));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t n_free = 0, n_total = 0;
    check(cudaMemGetInfo(&n_free, &n_total), "cudaMemGetInfo");
    throw Error(ErrorCode::out_of_memory, "CUDA device",
                in_bytes(static_cast<std::size_t>(bytes)) + " wanted, " + in_bytes(n_free) + " of " +
                    in_bytes(n_total) + " are free");
  }
  check(status, "cudaMalloc");
  return p;
}

void DeviceScratch::reserve_bytes(std::int64_t bytes) {
  if (bytes <= bytes_) return;
  bytes = grown(bytes_, bytes);
  check(cudaFree(std::exchange(data_, nullptr)), "cudaFree");
  bytes_ = 0;
  data_ = allocate_device(bytes);
  bytes_ = bytes;
}

void PinnedScratch::reserve_bytes(std::int64_t bytes) {
  if (bytes <= bytes_) return;
  bytes = grown(bytes_, bytes);
  check(cudaFreeHost(std::exchange(data_, nullptr)), "cudaFreeHost");
  bytes_ = 0;
  check(cudaHostAlloc(&data_, static_cast<std::size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc");
  bytes_ = bytes;
}

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
Event::Event(unsigned flags) { check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate"); }

}  // namespace banyan::kernels::cuda
