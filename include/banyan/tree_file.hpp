// Trees from files: the shapes that benches and `banyan plan` run on. Layer 3.
//
// Two forms are read, both JSON objects with a list `trees`, each tree with a `name` and maybe a list `heads`:
//   levels   {"nodes_per_level": [1, 8], "tokens_per_node": [512, 16]}: level i has so many nodes of so many tokens;
//            child j of a level with c nodes hangs on parent j * p / c of the p nodes above. One row per leaf.
//   ragged   {"nodes": [[parent index or -1, n_tokens, n_rows], ...]}: parents before children; the rows of a node are
//            its last n_rows tokens.
// A name in `heads` is letters and then query heads, and "/" and KV heads where these are fewer: "mha32", "gqa32/8".
// Tokens of the files' trees are made up (they count 0, 1, 2 ... within each node, from another start in each).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "banyan/plan.hpp"

namespace banyan {

// The same in a few lines, for people who write such a file: it ends each complaint about a file of another form.
std::string bench_tree_format();

struct BenchTree {
  struct Heads {
    std::string name;
    AttentionShape shape;
  };
  std::string name, source;
  std::vector<Heads> heads;            // kv_bytes 2 (bfloat16)
  std::unique_ptr<KvPool> pool;        // just large enough
  std::unique_ptr<SequenceTree> tree;  // all tokens have slots, and KV but for those of the rows
  std::vector<StepSpan> spans;         // one per node with rows, each row with logits
};

// Names of the file's trees, in its order. Throws Error{bad_file} naming the file.
std::vector<std::string> bench_tree_names(const std::string& path);

// Throws Error{bad_file} naming file, tree and node where it makes no sense, Error{usage} if there is no such tree.
BenchTree load_bench_tree(const std::string& path, const std::string& name);

}  // namespace banyan
