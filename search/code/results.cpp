// The results file of an evaluation: a line for each sample, and the way back.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "banyan/code/evaluate.hpp"
#include "banyan/tokenizer.hpp"
#include "json_text.hpp"
#include "line_reader.hpp"

namespace banyan::code {

namespace {

using Kind = JsonText::Kind;

constexpr std::array<std::string_view, 8> kVerdictNames = {"AC", "WA", "RE", "TLE", "MLE", "OLE", "CE", "unscored"};

// The readers of members: false for a value of another type, or one that cannot be.

bool read(const JsonText& value, std::string& out) {
  out = value.text();
  return value.is(Kind::string);
}

template <typename Number>
bool read_number(const JsonText& value, Number& out) {
  const char* end = value.raw().data() + value.raw().size();
  const auto [at, error] = std::from_chars(value.raw().data(), end, out);
  return value.is(Kind::number) && error == std::errc() && at == end;
}

bool read(const JsonText& value, std::int64_t& out) { return read_number(value, out) && out >= 0; }
bool read(const JsonText& value, double& out) { return read_number(value, out) && std::isfinite(out); }

bool read(const JsonText& value, std::optional<bool>& out) {
  if (value.is(Kind::boolean)) out = value.raw() == "true";
  return value.is(Kind::boolean) || value.is(Kind::null);
}

bool read(const JsonText& value, Verdict& out) {
  const auto at = std::ranges::find(kVerdictNames, value.text());
  out = static_cast<Verdict>(at - kVerdictNames.begin());
  return value.is(Kind::string) && at != kVerdictNames.end();
}

// Nothing for a line that is torn, or not ours.
std::optional<SampleResult> parse_result(const LineReader& lines) {
  try {
    const JsonText object = parse_json(lines.line(), lines.where());
    SampleResult result;
    const auto member = [&](const char* key, auto& out) {
      const auto value = object.find(key);
      return value && read(*value, out);
    };
    const bool good = member("task_id", result.task_id) && member("sample_id", result.sample_id) &&
                      member("verdict", result.verdict) && member("verdict_strict", result.verdict_strict) &&
                      member("tests_passed", result.tests_passed) && member("n_tests", result.n_tests) &&
                      member("time_ms", result.time_ms) && member("public_passed", result.public_passed) &&
                      member("output_group", result.output_group) && result.tests_passed <= result.n_tests;
    if (good) return result;
  } catch (const Error&) {
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Verdict verdict) { return kVerdictNames[static_cast<std::size_t>(verdict)]; }

std::string to_json_line(const SampleResult& result) {
  nlohmann::ordered_json line;
  line["task_id"] = sanitize_utf8(result.task_id);
  line["sample_id"] = result.sample_id;
  line["verdict"] = to_string(result.verdict);
  line["verdict_strict"] = to_string(result.verdict_strict);
  line["tests_passed"] = result.tests_passed;
  line["n_tests"] = result.n_tests;
  line["time_ms"] = std::round(result.time_ms * 1000) / 1000;
  line["public_passed"] = nullptr;
  if (result.public_passed) line["public_passed"] = *result.public_passed;
  line["output_group"] = sanitize_utf8(result.output_group);
  return line.dump();
}

std::map<SampleKey, SampleResult> read_results(const std::string& path) {
  std::map<SampleKey, SampleResult> results;
  if (!std::filesystem::exists(path)) return results;
  for (LineReader lines(path); lines.next();)
    if (auto result = parse_result(lines)) results.insert_or_assign(result->key(), *std::move(result));
  return results;
}

}  // namespace banyan::code
