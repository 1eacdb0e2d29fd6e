// The keys and values of a work item on their way into shared memory, whatever runs of slots they lie in: 16 bytes at a
// time, by the first warps of a block. They go into a ring of stages, each a *part* of a tile: keys, values, keys …
// Knows neither queries nor who waits for the copies.
//
// S, the shape of the kernel, says: kSlotBytes and kSlotVectors, of 16 bytes, of a key as it is stored; kTileKeys,
// kPartKeys and kParts (of keys in a tile, and as many of values); kStages, kStageBytes; kCopyWarps, kKeysPerWarp (that
// each copies of a part); slot_place(key, vector), where a vector of a part's key stands in its stage; kIsScaled:
// whether keys have scales, which then go to scale_place(key); kCopiesTilesOfRuns: whether tiles within one run are
// worth code of their own, and then key_place_below(place, n_keys).
#pragma once

#include "kernels/cuda/tile_ops.cuh"
#include "kernels/cuda/tile_params.hpp"

namespace banyan::kernels::cuda {

// Uniform in the warp but for slot_bytes_: the keys of a part, or of a group of parts, that the warp copies have a lane
// each that knows their place.
template <class S>
class KeyStream {
 public:
  __device__ __forceinline__ KeyStream(const TileParams& p, const WorkItem& item, int kv_head, std::uint32_t ring,
                                       int stage)
      : run_(p.work.runs + item.run), ring_(ring), n_left_(item.n_keys), stage_(stage) {
    slot_ = static_cast<int>(run_->first) + item.run_offset;
    n_left_in_run_ = static_cast<int>(run_->n) - item.run_offset;
    const std::int64_t head = kv_head * p.n_slots;
    keys_ = static_cast<const char*>(p.k) + head * S::kSlotBytes;
    values_ = static_cast<const char*>(p.v) + head * S::kSlotBytes;
    if constexpr (S::kIsScaled) {
      key_scales_ = p.k_scales + head;
      value_scales_ = p.v_scales + head;
    }
  }

  // Starts copying the next part: of [0, 2 kParts) of a tile, in order. A constant wherever this is called. The caller
  // commits.
  __device__ __forceinline__ void start(int part) {
    const char* base = part < S::kParts ? keys_ : values_;
    if (S::kCopiesTilesOfRuns && min(n_left_in_run_, n_left_) >= S::kTileKeys) {
      copy_neighbours(base + std::int64_t{slot_} * S::kSlotBytes);
      if (part == 1) next_tile();
    } else if (n_left_ > 0) {
      const int i = part % S::kParts, group = i / kGroup;
      const bool has_keys = S::kParts == 1 || i * S::kPartKeys < n_left_;
      if (part < S::kParts && i % kGroup == 0) {
        slot_bytes_[group] =
            place_of(i * S::kPartKeys + warp() * S::kKeysPerWarp + lane() % (kGroup * S::kKeysPerWarp));
      }
      if (has_keys) copy(base, slot_bytes_[group], i % kGroup * S::kKeysPerWarp);
      if constexpr (S::kIsScaled) {
        if (has_keys) {
          copy_scales(part < S::kParts ? key_scales_ : value_scales_, slot_bytes_[group], i % kGroup * S::kKeysPerWarp);
        }
      }
      if (part == 2 * S::kParts - 1) next_tile();
    }
    stage_ = (stage_ + 1) % S::kStages;
  }

 private:
  // Parts whose keys the lanes of a warp hold.
  static constexpr int kGroup = S::kCopyWarps == 1 ? 32 / S::kKeysPerWarp : 1;
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ __forceinline__ int warp() { return S::kCopyWarps == 1 ? 0 : static_cast<int>(threadIdx.x / 32); }

  // Of the key that stands `key` behind the tile's first; -1 behind the last.
  __device__ __forceinline__ std::int64_t place_of(int key) const {
    if (key >= n_left_) return -1;
    if (key < n_left_in_run_) return std::int64_t{slot_ + key} * S::kSlotBytes;
    const SlotRun* run = run_;
    std::int64_t rest = key - n_left_in_run_;
    for (++run; rest >= run->n; ++run) rest -= run->n;
    return (run->first + rest) * S::kSlotBytes;
  }

  __device__ __forceinline__ void copy(const char* base, std::int64_t slot_bytes, int first_lane) const {
    constexpr int kVectors = S::kKeysPerWarp * S::kSlotVectors;
    const std::uint32_t dst = ring_ + stage_ * S::kStageBytes;
#pragma unroll
    for (int j = 0; j < (kVectors + 31) / 32; ++j) {
      const int i = j * 32 + lane(), key = i / S::kSlotVectors, vector = i % S::kSlotVectors;
      const std::int64_t place = __shfl_sync(kAllLanes, slot_bytes, first_lane + key);
      if (kVectors % 32 != 0 && i >= kVectors) continue;
      const bool valid = place >= 0;
      copy_async(dst + S::slot_place(warp() * S::kKeysPerWarp + key, vector), base + (valid ? place : 0) + vector * 16,
                 valid);
    }
  }

  __device__ __forceinline__ void copy_scales(const float* scales, std::int64_t slot_bytes, int first_lane) const {
    static_assert(S::kKeysPerWarp <= 32);
    const std::int64_t place = __shfl_sync(kAllLanes, slot_bytes, first_lane + lane());
    if (lane() >= S::kKeysPerWarp) return;
    const bool valid = place >= 0;
    copy_async_4(ring_ + stage_ * S::kStageBytes + S::scale_place(warp() * S::kKeysPerWarp + lane()),
                 scales + (valid ? place / S::kSlotBytes : 0), valid);
  }

  // A part whose slots are neighbours, from `first` on: it lies in memory as one piece, and every copy of a lane is at
  // a constant distance from its first.
  __device__ __forceinline__ void copy_neighbours(const char* first) const {
    if constexpr (S::kCopiesTilesOfRuns) {
      static_assert(S::kParts == 1 && 32 % S::kSlotVectors == 0 && !S::kIsScaled);
      constexpr int kKeysAtOnce = 32 / S::kSlotVectors;
      const int first_key = warp() * S::kKeysPerWarp;
      const std::uint32_t dst = ring_ + stage_ * S::kStageBytes +
                                S::slot_place(first_key + lane() / S::kSlotVectors, lane() % S::kSlotVectors);
      const char* src = first + (first_key * S::kSlotVectors + lane()) * 16;
#pragma unroll
      for (int j = 0; j < S::kKeysPerWarp / kKeysAtOnce; ++j) {
        copy_async(S::key_place_below(dst, j * kKeysAtOnce), src + j * 512, true);
      }
    }
  }

  __device__ __forceinline__ void next_tile() {
    n_left_ -= S::kTileKeys;
    slot_ += S::kTileKeys;
    n_left_in_run_ -= S::kTileKeys;
    while (n_left_ > 0 && n_left_in_run_ <= 0) {
      ++run_;
      slot_ = static_cast<int>(run_->first) - n_left_in_run_;
      n_left_in_run_ += static_cast<int>(run_->n);
    }
  }

  const SlotRun* run_;                           // the one with the tile's first key
  const char *keys_, *values_;                   // of the KV head
  const float *key_scales_, *value_scales_;      // likewise, where S::kIsScaled
  std::int64_t slot_bytes_[S::kParts / kGroup];  // of this lane's keys, in bytes from the first slot
  std::uint32_t ring_;
  int n_left_;                // keys from the tile's first on
  int slot_, n_left_in_run_;  // from the tile's first key on
  int stage_;
};

// A part of keys or values as it is stored, with its scales, in a stage of R, to bf16 as the products of S read it; by
// the warps that copied it.
template <class R, class S>
__device__ __forceinline__ void widen_part(const unsigned char* stored, unsigned char* widened) {
  constexpr int kThreads = 32 * S::kCopyWarps, kRounds = S::kPartKeys * S::kVectors / kThreads;
  static_assert(S::kPartKeys * S::kVectors % kThreads == 0);
  constexpr int kAtOnce = kRounds % 4 == 0 ? 4 : kRounds;  // eight of 128 dims at once spill registers
#pragma unroll kAtOnce
  for (int j = 0; j < kRounds; ++j) {
    const int i = j * kThreads + static_cast<int>(threadIdx.x), key = i / S::kVectors, vector = i % S::kVectors;
    const uint2 codes = reinterpret_cast<const uint2*>(stored)[i];
    const float scale = *reinterpret_cast<const float*>(stored + R::scale_place(key));
    *reinterpret_cast<uint4*>(widened + S::key_place(key, vector)) = widen_codes(codes, scale);
  }
}

}  // namespace banyan::kernels::cuda
