// Which part of the problems is this process's own, where several work on one list. Layer 9. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace banyan::cli {

struct Shard {
  std::size_t index = 1, n = 1;  // 1 <= index <= n
};

using Environment = std::function<const char*(const char* name)>;  // null: not set

// "i/n", or "auto": what Slurm (SLURM_PROCID of SLURM_NTASKS) or Open MPI (OMPI_COMM_WORLD_RANK of
// OMPI_COMM_WORLD_SIZE) gave this process. Throws Error{usage}: not of that form; neither has set its variables, or
// both have and disagree.
Shard parse_shard(const std::string& text, const Environment& environment);

// "out/samples.jsonl" -> "out/samples.2-of-4.jsonl": processes that share a command line need files of their own.
std::string shard_path(const std::string& path, const Shard& shard);

}  // namespace banyan::cli
