// banyan/convert.hpp: what goes in comes out of the other form, and what cannot is refused.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "banyan/convert.hpp"
#include "parity_case.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

const std::vector<TokenId> kPrompt{0, 43, 38, 51, 7, 7, 63, 20};
const std::string kText = "the any thing, and 12 more.\n  in it";

void check_same_model(const std::string& a, const std::string& b) {
  CAPTURE(b);
  const auto x = load_oracle(a), y = load_oracle(b);
  CHECK(flat_logits(x, kPrompt) == flat_logits(y, kPrompt));
  CHECK(x->eos_ids() == y->eos_ids());
  CHECK(x->tokenizer()->encode(kText) == y->tokenizer()->encode(kText));
  const EncodeOptions special{.parse_special = true};
  CHECK(x->tokenizer()->encode("<|eos|>" + kText, special) == y->tokenizer()->encode("<|eos|>" + kText, special));
  CHECK(x->tokenizer()->spec().chat_template == y->tokenizer()->spec().chat_template);
}

const ConvertedType& row(const ConvertReport& report, DType type) {
  const auto found = std::ranges::find(report.types, type, &ConvertedType::type);
  REQUIRE(found != report.types.end());
  return *found;
}

bool is_empty(const TempDir& dir) { return std::filesystem::is_empty(dir.str()); }

}  // namespace

TEST_CASE("convert: the tiny model in f32, both ways and back, gives the same bits") {
  const TempDir dir("convert_forms");
  for (const std::string& source : {kTinyDir, kTinyGguf}) {
    const std::string kind = source == kTinyDir ? "hf" : "gguf";
    const std::string gguf = dir / (kind + ".gguf"), hf = dir / (kind + "_dir");
    for (const std::string& destination : {gguf, hf}) {
      const ConvertReport report = convert(source, destination);
      CHECK(report.types.size() == 1);
      CHECK(row(report, DType::f32).n_tensors == 21);
      CHECK(row(report, DType::f32).error == 0);
      CHECK(row(report, DType::f32).largest_error == 0);
      CHECK(report.n_fallback == 0);
      check_same_model(source, destination);
    }
    convert(gguf, dir / (kind + "_back"));
    check_same_model(source, dir / (kind + "_back"));
    convert(hf, dir / (kind + "_back.gguf"));
    check_same_model(source, dir / (kind + "_back.gguf"));
  }
  // Metadata of a GGUF that is converted to one go along word for word; the other files of a directory too.
  const GgufFile before(kTinyGguf), after(dir / "gguf.gguf");
  for (const auto key : before.keys()) {
    if (key.starts_with("general.")) continue;
    CHECK(std::ranges::equal(before.raw_value(key), after.raw_value(key)));
  }
  CHECK(read_file(dir / "hf_dir/tokenizer.json") == read_file(kTinyDir + "/tokenizer.json"));
}

TEST_CASE("convert: every family and rope type, both ways, or a refusal that names what has no words") {
  const TempDir dir("convert_families");
  int n_converted = 0;
  for (const ParityCase& c : parity_cases()) {
    CAPTURE(c.name);
    const std::string hf = dir / "hf", gguf = dir / "new.gguf", back = dir / "back";
    for (const auto& path : {hf, gguf, back}) std::filesystem::remove_all(path);
    std::filesystem::create_directory(hf);
    write_hf(c, dir);  // into the directory itself
    auto config = c.config();
    config.erase("eos_token_id");  // without a tokenizer, a GGUF has no place for it
    write_file(dir / "config.json", config.dump());
    for (const char* name : {"config.json", "model.safetensors"}) std::filesystem::rename(dir / name, hf + "/" + name);
    const std::string refused = error_of([&] { convert(hf, gguf); });
    const char* key =
        c.config().value("rope_scaling", nlohmann::json()).is_object() ? "rope_scaling" : "rope_parameters";
    const auto scaling = c.config().value(key, nlohmann::json());
    const std::string type = scaling.is_object() ? scaling.value("rope_type", scaling.value("type", "")) : "";
    if (c.is_reward() || !c.has_gguf()) {
      CHECK_MESSAGE(contains(refused, "cannot be said"), refused);
      continue;
    }
    REQUIRE_MESSAGE(refused.empty(), refused);
    const auto want = flat_logits(load_oracle(hf), c.prompt());
    CHECK(max_difference(flat_logits(load_oracle(gguf), c.prompt()), want) <= 1e-4F);
    const std::string back_refused = error_of([&] { convert(gguf, back); });
    if (type == "llama3") {  // a GGUF has it worked out, config.json wants its parameters
      CHECK_MESSAGE(contains(back_refused, "frequency factors"), back_refused);
      continue;
    }
    REQUIRE_MESSAGE(back_refused.empty(), back_refused);
    CHECK(max_difference(flat_logits(load_oracle(back), c.prompt()), want) <= 1e-4F);
    CHECK(config_from_json(hf + "/config.json").rope.long_divisors ==
          config_from_json(back + "/config.json").rope.long_divisors);
    ++n_converted;
  }
  CHECK(n_converted >= 17);
}

TEST_CASE("convert: longrope keeps both lists, the long context, and a magnitude of its own") {
  const TempDir dir("convert_longrope");
  for (const ParityCase& c : parity_cases()) {
    if (c.name != "phi-4-mini") continue;
    for (const double magnitude : {0.0, 1.25}) {  // 0: as the formula has it
      CAPTURE(magnitude);
      const std::string hf = dir / "hf", gguf = dir / "new.gguf", back = dir / "back";
      for (const auto& path : {hf, gguf, back}) std::filesystem::remove_all(path);
      std::filesystem::create_directory(hf);
      write_hf(c, dir);
      auto config = c.config();
      config.erase("eos_token_id");
      if (magnitude != 0) config["rope_scaling"]["attention_factor"] = magnitude;
      write_file(dir / "config.json", config.dump());
      for (const char* name : {"config.json", "model.safetensors"})
        std::filesystem::rename(dir / name, hf + "/" + name);
      convert(hf, gguf);
      convert(gguf, back);
      const auto written = nlohmann::json::parse(read_file(back + "/config.json"));
      CHECK(written["max_position_embeddings"] == config["max_position_embeddings"]);
      CHECK(written["original_max_position_embeddings"] == config["original_max_position_embeddings"]);
      CHECK(written["rope_scaling"].contains("attention_factor") == (magnitude != 0));
      const Rope a = config_from_json(hf + "/config.json").rope, b = config_from_json(back + "/config.json").rope;
      CHECK(b.type == Rope::Type::longrope);
      CHECK(b.divisors == a.divisors);
      CHECK(b.long_divisors == a.long_divisors);
      CHECK(b.long_positions == a.long_positions);
      CHECK(b.magnitude == doctest::Approx(a.magnitude).epsilon(1e-6));
      const auto want = flat_logits(load_oracle(hf), c.prompt());
      CHECK(max_difference(flat_logits(load_oracle(gguf), c.prompt()), want) <= 1e-4F);
      CHECK(max_difference(flat_logits(load_oracle(back), c.prompt()), want) <= 1e-4F);
    }
  }
}

TEST_CASE("convert: a reward model keeps its head in a directory, and has no form in a GGUF") {
  const TempDir dir("convert_reward");
  for (const ParityCase& c : parity_cases()) {
    if (!c.is_reward()) continue;
    CAPTURE(c.name);
    const std::string hf = dir / "hf", copy = dir / "copy";
    for (const auto& path : {hf, copy}) std::filesystem::remove_all(path);
    std::filesystem::create_directory(hf);
    write_hf(c, dir);
    for (const char* name : {"config.json", "model.safetensors"}) std::filesystem::rename(dir / name, hf + "/" + name);
    CHECK(contains(error_of([&] { convert(hf, dir / "new.gguf"); }), "scalar head of a reward model"));
    convert(hf, copy, {.type = DType::bf16});  // which holds the same values
    const auto a = load_oracle(hf), b = load_oracle(copy);
    CHECK(b->config().reward_head);
    CHECK(flat_logits(a, c.prompt()) == flat_logits(b, c.prompt()));
  }
}

TEST_CASE("convert: a sentencepiece vocabulary becomes a tokenizer.model, and comes back") {
  const TempDir dir("convert_spm");
  const MadeModel model(4, 2, true);
  std::vector<std::string> pieces{"<unk>", "<s>", "</s>", "\u2581", "t", "h", "e", "a", "n", "y", "\u2581t", "he"};
  pieces.insert(pieces.end(), {"\u2581the", "an", "<add ed>", "ny", "<|end|>"});
  std::vector<std::int32_t> types{2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 5, 3};
  pieces.resize(48);  // the ids behind have no text
  types.resize(48, 5);
  std::vector<float> scores;
  for (int i = 0; i < 48; ++i) scores.push_back(-static_cast<float>(i));
  const auto write = [&](const std::string& path, bool space_prefix) {
    GgufWriter out;
    add_config(out, model.config);
    out.add_string("tokenizer.ggml.model", "llama");
    out.add_strings("tokenizer.ggml.tokens", pieces);
    out.add_floats("tokenizer.ggml.scores", scores);
    out.add_ints("tokenizer.ggml.token_type", types);
    out.add_u32("tokenizer.ggml.eot_token_id", 16);
    out.add_bool("tokenizer.ggml.add_space_prefix", space_prefix);
    out.add_string("tokenizer.chat_template", "{{ x }}");
    add_tensors(out, model);
    write_file(path, out.bytes());
  };
  for (const bool space_prefix : {true, false}) {
    CAPTURE(space_prefix);
    const std::string gguf = dir / "a.gguf", hf = dir / "dir", back = dir / "b.gguf";
    for (const auto& path : {gguf, hf, back}) std::filesystem::remove_all(path);
    write(gguf, space_prefix);
    convert(gguf, hf);
    CHECK_FALSE(std::filesystem::exists(hf + "/tokenizer.json"));
    convert(hf, back);
    const auto a = load_oracle(gguf);
    for (const std::string& path : {hf, back}) {
      CAPTURE(path);
      const auto b = load_oracle(path);
      const std::vector<TokenId> prompt{1, 3, 14, 7, 7, 47};
      CHECK(flat_logits(a, prompt) == flat_logits(b, prompt));
      CHECK(b->eos_ids() == std::vector<TokenId>{2, 16});
      CHECK(b->tokenizer()->spec().scores == a->tokenizer()->spec().scores);
      CHECK(b->tokenizer()->spec().chat_template == "{{ x }}");
      for (const std::string text : {"", "the any", "  a<add ed>the", "<|end|> the<s>", "x\n", "\u2581then"}) {
        for (const bool special : {true, false}) {
          CAPTURE(text);
          const EncodeOptions options{.parse_special = special};
          CHECK(b->tokenizer()->encode(text, options) == a->tokenizer()->encode(text, options));
        }
      }
    }
  }
  pieces[40] = "the";
  pieces[41] = "the";
  types[40] = types[41] = 1;
  write(dir / "twice.gguf", true);
  CHECK(contains(error_of([&] { convert(dir / "twice.gguf", dir / "twice"); }), "piece 41, which is there twice,"));
}

TEST_CASE("convert: every type, with its error; matrices whose rows are no whole blocks are stored more exactly") {
  const TempDir dir("convert_types");
  const std::map<DType, double> most{
      {DType::f16, 1e-3}, {DType::bf16, 4e-3}, {DType::q8_0, 0.01}, {DType::q4_1, 0.1}, {DType::q4_0, 0.12}};
  for (const auto& [type, error] : most) {
    CAPTURE(to_string(type));
    const std::string path = dir / (std::string(to_string(type)) + ".gguf");
    const ConvertReport report = convert(kTinyDir, path, {.type = type});
    CHECK(row(report, type).n_tensors == 16);
    CHECK(row(report, type).error <= error);
    CHECK(row(report, type).error > 0);
    CHECK(row(report, type).largest_error > 0);
    CHECK(row(report, DType::f32).n_tensors == 5);  // norms
    const auto model = load_oracle(path);
    CHECK(max_difference(flat_logits(model, kPrompt), flat_logits(load_oracle(kTinyDir), kPrompt)) < 100 * error);
  }
  const ConvertReport report = convert(kTinyDir, dir / "q4_k.gguf", {.type = DType::q4_k});
  CHECK(report.n_fallback == 16);
  CHECK(report.block == 256);
  CHECK(row(report, DType::q8_0).n_tensors == 16);
  CHECK(flat_logits(load_oracle(dir / "q4_k.gguf"), kPrompt) == flat_logits(load_oracle(dir / "q8_0.gguf"), kPrompt));

  convert(kTinyGguf, dir / "half", {.type = DType::bf16});
  CHECK(flat_logits(load_oracle(dir / "half"), kPrompt) == flat_logits(load_oracle(dir / "bf16.gguf"), kPrompt));
  CHECK(nlohmann::json::parse(read_file(dir / "half/config.json"))["torch_dtype"] == "bfloat16");
}

TEST_CASE("convert: what cannot be done is refused by name and leaves nothing") {
  const TempDir dir("convert_refused");
  const auto error = [&](const std::string& source, const std::string& name, DType type = DType::f32) {
    return error_of([&] { convert(source, dir / name, {.type = type}); });
  };
  CHECK(contains(error(kTinyGguf, "out", DType::q8_0), "q8_0"));
  CHECK(contains(error(kTinyGguf, "out.gguf", DType::q5_0), "q5_0"));
  CHECK(contains(error(dir / "absent.gguf", "out.gguf"), "absent.gguf"));
  CHECK(is_empty(dir));
  write_file(dir / "there.gguf", "x");
  CHECK(contains(error(kTinyGguf, "there.gguf"), "exists"));
  CHECK(read_file(dir / "there.gguf") == "x");
  std::filesystem::remove(dir / "there.gguf");

  const TempDir sources("convert_refused_sources");
  MadeModel model(4, 2, true);
  model.weights.at("model.layers.1.mlp.up_proj.weight").values[5] = 1e5F;
  write_hf(model, sources, false);
  CHECK(contains(error(sources.str(), "out.gguf", DType::q4_0), "model.layers.1.mlp.up_proj.weight"));
  CHECK(contains(error(sources.str(), "out", DType::f16), "100000"));
  CHECK(error(sources.str(), "large.gguf", DType::bf16).empty());
  std::filesystem::remove(dir / "large.gguf");
  model.weights.at("model.layers.1.mlp.up_proj.weight").values[5] = NAN;
  write_hf(model, sources, false);
  CHECK(contains(error(sources.str(), "out.gguf"), "not finite"));
  CHECK(is_empty(dir));
}
