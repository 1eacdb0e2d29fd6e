// Two-level sampling, as for APPS: one shared root (a few-shot prompt), one node per problem below it, samples below
// each problem. Root and problem texts are computed once, whatever the number of samples (Hydragen, arXiv 2402.05099,
// section 4.4). Layer 8.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "banyan/session.hpp"

namespace banyan::search {

struct TwoLevelProblem {
  std::string id;                      // names the random stream: results do not depend on the problems' order
  std::string text;                    // tokenised by itself, behind the root
  std::vector<std::uint64_t> samples;  // numbers of the samples to draw (all of 0 … n-1, or what a resume lacks)
  Node node = {};                      // where the text is stored already, root and all
};

struct TwoLevelOptions {
  std::string root;            // may be empty: then each problem is a root
  Node below = {};             // a node to hang the problems on, instead of a root made of that text
  bool parse_special = false;  // texts that spell special tokens become those (chat prompts)
  SampleOptions sample;        // n, stream and first_sample are set per problem
  bool keep_nodes = false;     // keep finished samples in the tree (to draw it) instead of freeing their KV
  // Called for each finished sample as soon as it is done, in the order they end. A problem whose text cannot be
  // tokenised gives a Thought with the error for each of its samples.
  std::function<void(std::size_t problem, const Thought& thought)> on_sample = {};
};

struct TwoLevelResult {
  std::int64_t n_samples = 0, n_failed = 0;
  Node root;                                   // empty without a root
  std::vector<Node> problems;                  // with keep_nodes; empty where the text could not be tokenised
  std::vector<std::vector<Thought>> thoughts;  // with keep_nodes: [problem][as drawn]
};

Task<TwoLevelResult> two_level(Session& session, std::vector<TwoLevelProblem> problems, TwoLevelOptions options);

}  // namespace banyan::search
