// A model whose next token depends on the last one alone, by a table that a test writes: a real GGUF file, computed by
// the real kernels. Attention and feed-forward are zero; the embedding of token t is the t-th unit vector, which the
// final norm makes sqrt(vocab_size) long; column t of the head holds the logits behind t.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "model/gguf_writer.hpp"
#include "tokens/byte_alphabet.hpp"

namespace banyan::test {

class BigramModel {
 public:
  // The 256 bytes, then eos and bos. Logits are 0 until set.
  static constexpr int kEos = 256, kBos = 257, kVocab = 258, kDim = 260;

  explicit BigramModel(int context) : context_(context), head_(static_cast<std::size_t>(kVocab) * kDim, 0.0F) {}

  void set(int last, int next, float logit) {
    head_[static_cast<std::size_t>(next * kDim + last)] = logit / std::sqrt(static_cast<float>(kDim));
  }
  // Every byte of the text is followed by the next one and the last one by eos, with all the probability there is: the
  // others' logits are so far off that their log-probabilities are minus infinity. Bytes must not repeat.
  void chain(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const int last = static_cast<unsigned char>(text[i]);
      for (int next = 0; next < kVocab; ++next) set(last, next, -3e38F);
      set(last, i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : kEos, 3e38F);
    }
  }
  // Random logits, so that samples differ; eos is drawn about once in `length` tokens.
  void randomise(int length) {
    std::mt19937 random(5);
    std::normal_distribution<float> draw(0.0F, 1.0F);
    for (int last = 0; last < kVocab; ++last) {
      for (int next = 0; next < kVocab; ++next) set(last, next, next >= 32 && next < 127 ? draw(random) : -30.0F);
      set(last, '\n', 1.0F);
      set(last, kEos, std::log(160.0F / static_cast<float>(length)));
    }
  }

  std::string gguf(bool add_bos) const {
    GgufWriter out;
    const auto u32 = [&](const char* key, int value) { out.add_u32(key, static_cast<std::uint32_t>(value)); };
    out.add_string("general.architecture", "llama");
    out.add_string("general.name", "bigram");
    u32("llama.block_count", 1);
    u32("llama.context_length", context_);
    u32("llama.embedding_length", kDim);
    u32("llama.feed_forward_length", 4);
    u32("llama.attention.head_count", 1);
    u32("llama.attention.head_count_kv", 1);
    u32("llama.attention.key_length", 4);
    u32("llama.attention.value_length", 4);
    u32("llama.rope.dimension_count", 4);
    out.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-12F);
    add_vocabulary(out, add_bos);
    add_weights(out);
    return out.bytes();
  }

 private:
  static void add_vocabulary(GgufWriter& out, bool add_bos) {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.push_back(byte_to_piece(static_cast<unsigned char>(byte)));
    pieces.insert(pieces.end(), {"<|im_end|>", "<|im_start|>"});
    std::vector<std::int32_t> kinds(256, 1);
    kinds.insert(kinds.end(), {3, 3});
    out.add_string("tokenizer.ggml.model", "gpt2");
    out.add_string("tokenizer.ggml.pre", "gpt-2");
    out.add_strings("tokenizer.ggml.tokens", pieces);
    out.add_ints("tokenizer.ggml.token_type", kinds);
    out.add_strings("tokenizer.ggml.merges", {});
    out.add_u32("tokenizer.ggml.eos_token_id", kEos);
    out.add_u32("tokenizer.ggml.bos_token_id", kBos);
    out.add_bool("tokenizer.ggml.add_bos_token", add_bos);
    out.add_string("tokenizer.chat_template",
                   "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                   "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                   "{% endif %}");
  }

  void add_weights(GgufWriter& out) const {
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape, std::vector<float> values) {
      out.add_tensor(name, DType::f32, shape,
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    };
    std::vector<float> embedding(static_cast<std::size_t>(kVocab) * kDim, 0.0F);
    for (std::size_t t = 0; t < kVocab; ++t) embedding[t * kDim + t] = 1.0F;
    const std::vector<float> ones(kDim, 1.0F), zeros(4 * kDim, 0.0F);
    add("token_embd.weight", {kVocab, kDim}, embedding);
    add("output_norm.weight", {kDim}, ones);
    add("output.weight", {kVocab, kDim}, head_);
    add("blk.0.attn_norm.weight", {kDim}, ones);
    add("blk.0.ffn_norm.weight", {kDim}, ones);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"}) {
      add(std::string("blk.0.") + name + ".weight", {4, kDim}, zeros);
    }
    for (const char* name : {"attn_output", "ffn_down"})
      add(std::string("blk.0.") + name + ".weight", {kDim, 4}, zeros);
  }

  int context_;
  std::vector<float> head_;  // [kVocab, kDim]
};

}  // namespace banyan::test
