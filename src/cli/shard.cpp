#include "cli/shard.hpp"

#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "banyan/error.hpp"

namespace banyan::cli {
namespace {

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What a launcher says in two variables, ranks from 0; nothing without a rank (Slurm gives the size to an allocation's
// shell, too).
std::optional<Shard> launched(const Environment& environment, const char* rank_name, const char* size_name) {
  const char *rank_text = environment(rank_name), *size_text = environment(size_name);
  if (rank_text == nullptr) return std::nullopt;
  const auto rank = number(rank_text), size = number(size_text != nullptr ? size_text : "");
  if (!rank || !size || *rank >= *size) {
    throw Error(ErrorCode::usage, "--shard auto",
                fmt::format("{} is '{}' and {} is {}: no rank below a size", rank_name, rank_text, size_name,
                            size_text != nullptr ? fmt::format("'{}'", size_text) : "not set"));
  }
  return Shard{*rank + 1, *size};
}

}  // namespace

Shard parse_shard(const std::string& text, const Environment& environment) {
  if (text == "auto") {
    const auto slurm = launched(environment, "SLURM_PROCID", "SLURM_NTASKS");
    const auto mpi = launched(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (!slurm && !mpi) {
      throw Error(ErrorCode::usage, "--shard auto",
                  "neither Slurm (SLURM_PROCID, SLURM_NTASKS) nor Open MPI (OMPI_COMM_WORLD_RANK, "
                  "OMPI_COMM_WORLD_SIZE) started this process; write i/n");
    }
    if (slurm && mpi && (slurm->index != mpi->index || slurm->n != mpi->n)) {
      throw Error(
          ErrorCode::usage, "--shard auto",
          fmt::format("Slurm says {}/{}, Open MPI {}/{}; write i/n", slurm->index, slurm->n, mpi->index, mpi->n));
    }
    return slurm ? *slurm : *mpi;
  }
  const auto slash = text.find('/');
  const auto index = number(std::string_view(text).substr(0, slash));
  const auto n = slash == std::string::npos ? std::nullopt : number(std::string_view(text).substr(slash + 1));
  if (!index || !n || *index < 1 || *index > *n) {
    throw Error(ErrorCode::usage, "--shard", fmt::format("'{}' is neither auto nor i/n with 1 <= i <= n", text));
  }
  return {*index, *n};
}

std::string shard_path(const std::string& path, const Shard& shard) {
  std::filesystem::path p(path);
  const std::string ending = p.extension().string();
  return p.replace_extension(fmt::format(".{}-of-{}{}", shard.index, shard.n, ending)).string();
}

}  // namespace banyan::cli
