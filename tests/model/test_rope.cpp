#include <doctest/doctest.h>
#include <numbers>

#include "made_model.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

Rope rope_of(const nlohmann::json& keys) {
  const TempDir dir("rope_of");
  auto json = config_json(MadeModel(4, 2, true).config, false);
  json["head_dim"] = 16;
  json.update(keys);
  write_file(dir / "config.json", json.dump());
  return config_from_json(dir / "config.json").rope;
}

}  // namespace

TEST_CASE("BL-09: yarn's magnitude by formula, by attention_factor, by mscale, in `inspect` and in the logits") {
  const TempDir dir("rope_bl09");
  const MadeModel model(4, 2, true);
  write_hf(model, dir, false);
  const nlohmann::json yarn{{"rope_type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 64}};
  const auto load = [&](const nlohmann::json& more) {
    auto json = config_json(model.config, false);
    json["rope_scaling"] = yarn;
    json["rope_scaling"].update(more);
    write_file(dir / "config.json", json.dump());
    return load_oracle(dir.str());
  };
  const auto by_formula = load(nlohmann::json::object());
  CHECK(by_formula->layers()[1].rope_magnitude == doctest::Approx(0.1 * std::log(16.0) + 1).epsilon(1e-7));
  CHECK_MESSAGE(contains(by_formula->describe(), "magnitude 1.2772589\n"), by_formula->describe());
  const std::vector<TokenId> prompt{3, 41, 5, 0, 47, 17};
  const auto logits = flat_logits(by_formula, prompt);
  const auto one = flat_logits(load({{"attention_factor", 1.0}}), prompt);
  for (const auto& more :
       std::vector<nlohmann::json>{{{"attention_factor", 1.0}}, {{"mscale", 1}, {"mscale_all_dim", 1}}}) {
    const auto overridden = load(more);
    CHECK(overridden->layers()[0].rope_magnitude == 1.0F);
    CHECK_MESSAGE(contains(overridden->describe(), "magnitude 1\n"), overridden->describe());
    CHECK(flat_logits(overridden, prompt) == one);
  }
  CHECK(max_difference(logits, one) > 0.01F);  // it matters
}

TEST_CASE("rope: llama3 keeps short waves, stretches long ones, and blends between") {
  // Llama 3.1's parameters. Waves below 8192 / 4 positions stay, above 8192 they are 8 times as long.
  const Rope rope{.type = Rope::Type::llama3,
                  .theta = 500000.0,
                  .n_dims = 128,
                  .factor = 8.0,
                  .original_positions = 8192,
                  .low_freq_factor = 1.0,
                  .high_freq_factor = 4.0};
  const auto scaled = rope_inv_freq(rope);
  const auto plain = rope_inv_freq({.theta = 500000.0, .n_dims = 128});
  REQUIRE(scaled.size() == 64);
  int n_kept = 0, n_blended = 0, n_stretched = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double wave = 2 * std::numbers::pi / plain[i], ratio = plain[i] / scaled[i];
    if (wave < 2048) {
      CHECK(ratio == doctest::Approx(1.0));
      ++n_kept;
    } else if (wave > 8192) {
      CHECK(ratio == doctest::Approx(8.0));
      ++n_stretched;
    } else {
      CHECK((ratio > 1.0 && ratio < 8.0));
      ++n_blended;
    }
  }
  CHECK((n_kept > 20 && n_blended > 3 && n_stretched > 20));
}

TEST_CASE("BL-36: llama3 under each spelling has the published frequencies; none and default are unscaled") {
  const nlohmann::json llama3{
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  const auto with = [&](const char* key, const char* type) {
    auto block = llama3;
    block[key] = type;
    return block;
  };
  const auto frequencies = [](const nlohmann::json& changes) {
    Rope rope = rope_of(changes);
    rope.n_dims = 128;
    return rope_inv_freq(rope);
  };
  auto inside = with("rope_type", "llama3");
  inside["rope_theta"] = 5e5;
  for (const nlohmann::json& changes : std::vector<nlohmann::json>{
           {{"rope_theta", 5e5}, {"rope_scaling", with("rope_type", "llama3")}},
           {{"rope_theta", 5e5}, {"rope_scaling", with("type", "llama3")}},
           {{"rope_theta", nullptr}, {"rope_parameters", inside}},
       }) {
    const auto f = frequencies(changes);
    CHECK(f[0] == 1.0F);
    CHECK(f[28] == doctest::Approx(3.211445995e-03).epsilon(1e-6));
    CHECK(f[30] == doctest::Approx(1.371893568e-03).epsilon(1e-6));
    CHECK(f[32] == doctest::Approx(5.248461610e-04).epsilon(1e-6));
    CHECK(f[63] == doctest::Approx(3.068925989e-07).epsilon(1e-6));
  }
  const auto plain = rope_inv_freq({.theta = 5e5, .n_dims = 128});
  CHECK(frequencies({{"rope_theta", 5e5}, {"rope_scaling", nullptr}}) == plain);
  CHECK(frequencies({{"rope_theta", 5e5}, {"rope_scaling", {{"rope_type", "default"}}}}) == plain);
  CHECK(contains(error_of([&] { rope_of({{"rope_scaling", with("rope_type", "foo")}}); }), "'foo'"));
  auto lacking = with("rope_type", "llama3");
  lacking.erase("factor");
  CHECK(contains(error_of([&] { rope_of({{"rope_scaling", lacking}}); }), "factor"));
}

TEST_CASE("rope: linear divides all frequencies, yarn those that turn seldom, longrope each by its own factor") {
  const auto plain = rope_inv_freq({.n_dims = 32});
  const auto linear = rope_inv_freq({.type = Rope::Type::linear, .n_dims = 32, .factor = 4.0});
  const auto yarn = rope_inv_freq({.type = Rope::Type::yarn, .n_dims = 32, .factor = 4.0, .original_positions = 4096});
  std::vector<float> divisors;
  for (int i = 0; i < 16; ++i) divisors.push_back(1.0F + static_cast<float>(i));
  const auto longrope =
      rope_inv_freq({.type = Rope::Type::longrope, .n_dims = 32, .original_positions = 4096, .divisors = divisors});
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(plain[i] == doctest::Approx(std::pow(10000.0, -static_cast<double>(i) / 16)));
    CHECK(plain[i] / linear[i] == doctest::Approx(4.0));
    CHECK(plain[i] / longrope[i] == doctest::Approx(1.0 + static_cast<double>(i)));
    const double turns = 4096 * static_cast<double>(plain[i]) / (2 * std::numbers::pi);
    if (turns > 80) CHECK(plain[i] / yarn[i] == doctest::Approx(1.0));
    if (turns < 0.5) CHECK(plain[i] / yarn[i] == doctest::Approx(4.0));
    CHECK(yarn[i] <= plain[i]);
  }
}

TEST_CASE("rope: old and new key names mean the same") {
  const nlohmann::json yarn{{"factor", 4.0}, {"original_max_position_embeddings", 32}, {"beta_fast", 16}};
  const auto with = [&](std::initializer_list<std::pair<const char*, nlohmann::json>> more) {
    auto object = yarn;
    for (const auto& [key, value] : more) object[key] = value;
    return object;
  };
  const Rope old = rope_of({{"rope_theta", 5e5}, {"rope_scaling", with({{"type", "yarn"}})}});
  CHECK(old.type == Rope::Type::yarn);
  CHECK(old.theta == 5e5);
  CHECK(old.beta_fast == 16.0);
  CHECK(rope_of({{"rope_theta", 5e5}, {"rope_scaling", with({{"rope_type", "yarn"}})}}) == old);
  CHECK(rope_of({{"rope_theta", 5e5}, {"rope_scaling", with({{"rope_type", "yarn"}, {"type", "yarn"}})}}) == old);
  auto inside = config_json(MadeModel(4, 2, true).config, false);
  CHECK(rope_of({{"rope_theta", nullptr}, {"rope_parameters", with({{"rope_type", "yarn"}, {"rope_theta", 5e5}})}}) ==
        old);
  // Both blocks in one file are well where they agree.
  CHECK(rope_of({{"rope_theta", 5e5},
                 {"rope_scaling", with({{"type", "yarn"}})},
                 {"rope_parameters", with({{"rope_type", "yarn"}, {"rope_theta", 5e5}})}}) == old);
  CHECK(contains(error_of([&] {
                   rope_of({{"rope_scaling", with({{"type", "yarn"}})},
                            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}});
                 }),
                 "contradicts"));
}

TEST_CASE("rope: unknown types and parameters are refused by name, impossible ones are errors") {
  const auto error = [](const nlohmann::json& block) { return error_of([&] { rope_of({{"rope_scaling", block}}); }); };
  for (const char* type : {"dynamic", "ntk", "mrope", "proportional", "su", "foo"}) {
    const auto text = error({{"rope_type", type}, {"factor", 2.0}});
    CHECK_MESSAGE((contains(text, "unsupported: ") && contains(text, std::string("'") + type + "'")), text);
  }
  CHECK(contains(error({{"factor", 2.0}}), "names no rope_type"));
  CHECK(contains(error({{"type", "yarn"}, {"rope_type", "linear"}, {"factor", 2.0}}), "contradicts"));
  CHECK(contains(error({{"rope_type", "linear"}, {"factor", 2.0}, {"mrope_section", {1, 2}}}), "mrope_section"));
  CHECK(contains(error({{"full_attention", {{"rope_type", "default"}}}}), "full_attention"));
  CHECK(contains(error({{"rope_type", "linear"}}), "factor"));
  CHECK(contains(error({{"rope_type", "linear"}, {"factor", -1.0}}), "factor"));
  CHECK(contains(error({{"rope_type", "linear"}, {"factor", "2"}}), "factor"));
  CHECK(contains(error({{"rope_type", "llama3"}, {"factor", 8.0}}), "low_freq_factor"));
  CHECK(contains(error({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
                 "high_freq_factor"));
  CHECK(contains(error({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 0}}), "magnitude"));
  CHECK(contains(error({{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2, 3}}}), "differ"));
  CHECK(contains(error({{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}), "2 of them"));
  CHECK(contains(error("yarn"), "no object"));
}
