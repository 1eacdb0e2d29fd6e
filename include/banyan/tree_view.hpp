// Trees to look at: JSON, Graphviz DOT, or one self-contained HTML page. Layer 7: reads a tree, changes nothing.
#pragma once

#include <iosfwd>
#include <string>

#include "banyan/tokenizer.hpp"
#include "banyan/tree.hpp"

namespace banyan {

// Each writes all nodes alive. `tokenizer` may be null: tokens are shown as ids. Texts are valid UTF-8.
// JSON: {"nodes": [{"id", "parent" (null for a root), "attach", "n_tokens", "position", "n_leaves", "text"}]}, by id.
void write_tree_json(const SequenceTree& tree, const Tokenizer* tokenizer, std::ostream& out);
void write_tree_dot(const SequenceTree& tree, const Tokenizer* tokenizer, std::ostream& out);
// One page, no outside resource: folds and unfolds subtrees, shows texts, token counts, and what sharing saves.
void write_tree_html(const SequenceTree& tree, const Tokenizer* tokenizer, std::ostream& out);

// Chooses by the ending of `path` (.json, .dot, .html); written whole or not at all. Throws Error{usage} for another
// ending, Error{device} where the file cannot be written.
void write_tree_view(const SequenceTree& tree, const Tokenizer* tokenizer, const std::string& path);

}  // namespace banyan
