#include <doctest/doctest.h>

#include "made_model.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

const std::vector<TokenId> kPrompt{3, 41, 5, 0, 47, 17, 17, 2, 30};

// The attention variants: multi-head, grouped, multi-query.
struct Heads {
  std::int64_t n_q, n_kv;
};
const std::vector<Heads> kHeads{{4, 4}, {4, 2}, {6, 2}, {4, 1}};

std::vector<float> hidden_times(const std::shared_ptr<const Model>& model, const MadeTensor& head) {
  Forward forward(model, DType::f32, static_cast<std::int64_t>(kPrompt.size()));
  forward.run(flat_plan(kPrompt));
  const auto hidden = forward.hidden();
  const auto n_out = head.shape[0], n_in = head.shape[1];
  std::vector<float> logits;
  for (std::size_t r = 0; r < kPrompt.size(); ++r) {
    for (std::int64_t o = 0; o < n_out; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < n_in; ++i) {
        sum += static_cast<double>(hidden[r * static_cast<std::size_t>(n_in) + static_cast<std::size_t>(i)]) *
               head.values[static_cast<std::size_t>(o * n_in + i)];
      }
      logits.push_back(static_cast<float>(sum));
    }
  }
  return logits;
}

}  // namespace

TEST_CASE("load: both file forms, all element types, one or more shards give the same bits") {
  const TempDir dir("load_forms");
  for (const Heads& heads : kHeads) {
    const std::int64_t n_heads_q = heads.n_q, n_heads_kv = heads.n_kv;
    CAPTURE(n_heads_q);
    CAPTURE(n_heads_kv);
    const MadeModel model(n_heads_q, n_heads_kv, true);
    write_hf(model, dir, false);
    const auto expected = flat_logits(load_oracle(dir.str()), kPrompt);
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      write_hf(model, dir, false, 1, type);
      CHECK(flat_logits(load_oracle(dir.str()), kPrompt) == expected);
      write_gguf(model, dir / "m.gguf", type);
      CHECK(flat_logits(load_oracle(dir / "m.gguf"), kPrompt) == expected);
    }
    std::filesystem::remove(dir / "model.safetensors");
    write_hf(model, dir, false, 3);
    CHECK(flat_logits(load_oracle(dir.str()), kPrompt) == expected);
  }
}

TEST_CASE("load: a grouped model equals the multi-head model whose KV heads are written out") {
  const TempDir dir("load_grouped");
  for (const Heads& heads : kHeads) {
    const std::int64_t n_heads_q = heads.n_q, n_heads_kv = heads.n_kv;
    const MadeModel grouped(n_heads_q, n_heads_kv, true);
    MadeModel full = grouped;
    full.config.n_heads_kv = n_heads_q;
    const std::int64_t head_size = 8 * 32;  // values of one head's rows
    for (const auto& name : {"k_proj", "v_proj"}) {
      for (int layer = 0; layer < 2; ++layer) {
        auto& t = full.weights.at("model.layers." + std::to_string(layer) + ".self_attn." + name + ".weight");
        std::vector<float> repeated;
        for (std::int64_t h = 0; h < n_heads_q; ++h) {
          const auto from = t.values.begin() + h / (n_heads_q / n_heads_kv) * head_size;
          repeated.insert(repeated.end(), from, from + head_size);
        }
        t = {.shape = {n_heads_q * 8, 32}, .values = repeated};
      }
    }
    write_hf(grouped, dir, false);
    const auto expected = flat_logits(load_oracle(dir.str()), kPrompt);
    write_hf(full, dir, false);
    CHECK(flat_logits(load_oracle(dir.str()), kPrompt) == expected);
  }
}

TEST_CASE("BL-35: tie flag and head are reconciled, or the missing one is named") {
  const TempDir dir("load_bl35");
  const MadeModel with_head(4, 2, true);
  MadeModel without_head = with_head;
  without_head.weights.erase("lm_head.weight");
  const MadeTensor& embed = with_head.weights.at("model.embed_tokens.weight");
  const MadeTensor& head = with_head.weights.at("lm_head.weight");

  SUBCASE("tied, absent: the embedding table") {
    write_hf(without_head, dir, true);
    const auto model = load_oracle(dir.str());
    CHECK(model->config().tied_embeddings);
    CHECK(max_difference(flat_logits(model, kPrompt), hidden_times(model, embed)) <= 1e-4F);
    CHECK(&model->head() == &model->embed());
    CHECK_FALSE(contains(model->describe(), "note"));
  }
  SUBCASE("tied, present: the embedding table, and describe() says so") {
    write_hf(with_head, dir, true);
    const auto model = load_oracle(dir.str());
    CHECK(max_difference(flat_logits(model, kPrompt), hidden_times(model, embed)) <= 1e-4F);
    CHECK(contains(model->describe(), "from which it differs"));
    MadeModel same = with_head;
    same.weights["lm_head.weight"] = embed;
    write_hf(same, dir, true);
    const auto text = load_oracle(dir.str())->describe();
    CHECK(contains(text, "lm_head.weight is ignored"));
    CHECK_FALSE(contains(text, "differs"));
  }
  SUBCASE("not tied, present: the head") {
    write_hf(with_head, dir, false);
    const auto model = load_oracle(dir.str());
    CHECK_FALSE(model->config().tied_embeddings);
    CHECK(max_difference(flat_logits(model, kPrompt), hidden_times(model, head)) <= 1e-4F);
  }
  SUBCASE("not tied, absent: an error") {
    write_hf(without_head, dir, false);
    CHECK(contains(error_of([&] { load_oracle(dir.str()); }), "lm_head.weight"));
  }
  SUBCASE("GGUF without output.weight: the embedding table") {
    write_gguf(without_head, dir / "m.gguf");
    const auto model = load_oracle(dir / "m.gguf");
    CHECK(model->config().tied_embeddings);
    CHECK(max_difference(flat_logits(model, kPrompt), hidden_times(model, embed)) <= 1e-4F);
  }
}

TEST_CASE("load: quantised GGUF tensors give the logits of the values that their blocks hold") {
  const TempDir dir("load_quantised");
  const MadeModel model(4, 2, true);
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1}) {
    // Every row is one block of 32: scale 1/16 (and minimum -1/2), quants drawn; the f32 twin holds the same values.
    MadeModel twin = model;
    GgufWriter quantised;
    add_config(quantised, model.config);
    std::mt19937 random(5);
    for (auto& [name, t] : twin.weights) {
      for (float& x : t.values) {
        const auto q = static_cast<int>(random() % 16U);
        x = t.shape.size() == 1 ? 1.0F : static_cast<float>(q - 8) / 16.0F;
      }
    }
    GgufWriter plain;
    add_config(plain, model.config);
    add_tensors(plain, twin);
    write_file(dir / "plain.gguf", plain.bytes());
    const GgufFile file(dir / "plain.gguf");  // in GGUF's names and row order
    for (const auto& [name, t] : file.tensors()) {
      std::vector<float> x(static_cast<std::size_t>(t.n_elements()));
      dequantize(t.type, t.data, t.n_elements(), x.data());
      std::string data;
      const auto half = [&](float value) {
        const std::uint16_t bits = to_f16(value).bits;
        data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      };
      if (t.shape.size() == 1) {
        quantised.add_tensor(name, DType::f32, t.shape, tensor_data({t.shape, x}, DType::f32));
        continue;
      }
      for (std::size_t block = 0; block < x.size(); block += 32) {
        half(1.0F / 16.0F);
        if (type == DType::q4_1) half(-0.5F);
        const auto quant = [&](std::size_t i) {
          return static_cast<int>(x[block + i] * 16.0F) + (type == DType::q8_0 ? 0 : 8);
        };
        for (std::size_t i = 0; i < (type == DType::q8_0 ? 32U : 16U); ++i) {
          data += static_cast<char>(type == DType::q8_0 ? quant(i) : quant(i) | quant(i + 16) << 4);
        }
      }
      quantised.add_tensor(name, type, t.shape, data);
    }
    write_file(dir / "quantised.gguf", quantised.bytes());
    CAPTURE(to_string(type));
    CHECK(flat_logits(load_oracle(dir / "quantised.gguf"), kPrompt) ==
          flat_logits(load_oracle(dir / "plain.gguf"), kPrompt));
  }
}

TEST_CASE("load: configurations that contradict themselves or the weights are errors") {
  const TempDir dir("load_contradiction");
  const MadeModel model(4, 2, true);
  write_hf(model, dir, false);
  const auto error_with = [&](const char* key, const nlohmann::json& value) {
    auto json = config_json(model.config, false);
    json[key] = value;
    write_file(dir / "config.json", json.dump());
    return error_of([&] { load_oracle(dir.str()); });
  };
  CHECK(contains(error_with("num_key_value_heads", 3), "multiple"));
  CHECK(contains(error_with("num_key_value_heads", 0), "not positive"));
  CHECK(contains(error_with("num_hidden_layers", 3), "model.layers.2."));
  CHECK(contains(error_with("num_hidden_layers", 1), "model.layers.1."));  // tensors that would be left out
  CHECK(contains(error_with("num_hidden_layers", std::int64_t{1} << 40), "beyond"));
  CHECK(contains(error_with("hidden_size", 64), "model.embed_tokens.weight"));
  CHECK(contains(error_with("hidden_size", "32"), "hidden_size"));
  CHECK(contains(error_with("hidden_size", nullptr), "hidden_size"));
  CHECK(contains(error_with("head_dim", 7), "odd"));
  CHECK(contains(error_with("rms_norm_eps", -1.0), "epsilon"));
  CHECK(contains(error_with("rope_theta", 0.0), "theta"));
  CHECK(contains(error_with("eos_token_id", 48), "end-of-text"));
  CHECK(contains(error_with("eos_token_id", "x"), "eos_token_id"));
  CHECK(contains(error_of([&] { load_oracle(dir / "nothing"); }), "nothing"));
}

TEST_CASE("load: tensors that no part of the model reads are refused by name") {
  const TempDir dir("load_unread");
  const MadeModel model(4, 2, true);
  for (const char* name : {"blk.0.attn_k.bias", "blk.0.attn_q_norm.weight", "blk.2.attn_q.weight",
                           "rope_factors_long.weight", "cls.output.weight"}) {
    GgufWriter out;
    add_config(out, model.config);
    add_tensors(out, model);
    out.add_tensor(name, DType::f32, {32}, std::string(32 * 4, '\0'));
    write_file(dir / "m.gguf", out.bytes());
    const auto error = error_of([&] { load_oracle(dir / "m.gguf"); });
    CHECK_MESSAGE((contains(error, name) && contains(error, "unsupported: ")), error);
  }
}

TEST_CASE("load: end-of-text ids are the union over all files") {
  const TempDir dir("load_eos");
  const MadeModel model(4, 2, true);
  write_hf(model, dir, false);
  CHECK(load_oracle(dir.str())->eos_ids().empty());
  auto json = config_json(model.config, false);
  json["eos_token_id"] = 7;
  write_file(dir / "config.json", json.dump());
  write_file(dir / "generation_config.json", R"({"eos_token_id": [3, 7, 40]})");
  CHECK(load_oracle(dir.str())->eos_ids() == std::vector<TokenId>{3, 7, 40});
}

TEST_CASE("load: describe() names the shapes, types, compute and tokenizer") {
  const auto model = load_oracle(kTinyGguf);
  const std::string text = model->describe();
  CAPTURE(text);
  for (const char* part :
       {"llama, 2 layers, hidden 32, intermediate 64, vocabulary 64", "4 query heads x 8, 2 KV heads", "its own matrix",
        "21 f32", "oracle", "bpe, pre-tokenizer gpt-2, 64 pieces, bos 0 (added)"}) {
    CHECK_MESSAGE(contains(text, part), part);
  }
  CHECK(model->eos_ids() == std::vector<TokenId>{1});
  // Both layers: qkv 64 x 32, out 32 x 32, gate_up 128 x 32, down 32 x 64, two FLOPs each.
  CHECK(model->flops_per_row() == 2.0 * 2 * (64 * 32 + 32 * 32 + 128 * 32 + 32 * 64));
}

TEST_CASE("forward: tokens beyond the vocabulary and models without weights are typed errors") {
  const auto model = load_oracle(kTinyGguf);
  Forward forward(model, DType::f32, 4);
  const std::vector<TokenId> beyond{1, 64}, negative{-1}, good{1, 63};
  CHECK(contains(error_of([&] { forward.run(flat_plan(beyond)); }), "64"));
  CHECK(contains(error_of([&] { forward.run(flat_plan(negative)); }), "row 0"));
  CHECK(forward.run(flat_plan(good)).size() == 2 * 64);  // and it goes on
  CHECK(contains(error_of([&] { Forward(model, DType::q8_0, 4); }), "q8_0"));
  CHECK(contains(error_of([&] { Forward(model, DType::f32, 0); }), "not positive"));
  CHECK(contains(error_of([&] { Forward(nullptr, DType::f32, 4); }), "no weights"));
}
