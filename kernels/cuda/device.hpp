// Memory on the device, pinned memory on the host, streams and events: owners, and nothing of what they hold.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>

namespace banyan::kernels::cuda {

// use_device() of a device that may not be there: throws Error{usage} naming those that are. Gives its number back.
int open_device(int device);
void use_device(int device);  // makes it the calling thread's own; cheap, for every step
int n_devices();              // 0 also where there is no driver

// 256-byte aligned. Throws Error{out_of_memory} with the size asked for, what is free and what the device has.
void* allocate_device(std::int64_t bytes);

// Grows only: after warm-up nothing allocates. Contents are lost when it grows.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch() { cudaFree(data_); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Growing waits for the device, as work in flight may read the old memory.
  void reserve_bytes(std::int64_t bytes);
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

class PinnedScratch {
 public:
  PinnedScratch() = default;
  ~PinnedScratch() { cudaFreeHost(data_); }
  PinnedScratch(const PinnedScratch&) = delete;
  PinnedScratch& operator=(const PinnedScratch&) = delete;

  void reserve_bytes(std::int64_t bytes);  // as DeviceScratch
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

class Stream {
 public:
  Stream();
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming);
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace banyan::kernels::cuda
