#include "model/flat_json.hpp"

#include <fmt/format.h>

namespace banyan {
namespace {

constexpr std::size_t kMostQuoted = 200;  // bytes

}  // namespace

std::string clipped(std::string_view text) {
  return text.size() <= kMostQuoted ? std::string(text) : std::string(text.substr(0, kMostQuoted)) + "…";
}

// The parser's events; false would end the parse, but every fault is thrown.
class FlatJson::Events final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Events(FlatJson& reader, const std::string& where) : reader_(reader), where_(where) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool x) override { return scalar(x); }
  bool number_integer(number_integer_t x) override { return scalar(x); }
  bool number_unsigned(number_unsigned_t x) override { return scalar(x); }
  bool number_float(number_float_t x, const string_t&) override { return scalar(x); }
  bool string(string_t& x) override { return scalar(std::move(x)); }
  bool binary(binary_t&) override { return false; }  // not of JSON texts

  bool start_object(std::size_t) override {
    if (in_list_ || depth_ == 2) fail_deeper();
    if (++depth_ == 2) reader_.begin(member_);
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2) reader_.end(member_);
    field_.clear();
    return true;
  }
  bool key(string_t& name) override {
    (depth_ == 1 ? member_ : field_) = std::move(name);
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) fail_no_object();
    if (in_list_) fail_deeper();
    in_list_ = true;
    reader_.list(member_, field_);
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    throw Error(ErrorCode::bad_file, where_,
                fmt::format("is not valid JSON at byte {}: {}", position, clipped(e.what())));
  }

 private:
  bool scalar(nlohmann::json value) {
    if (depth_ == 0) fail_no_object();
    reader_.value(member_, field_, in_list_, value);
    return true;
  }
  [[noreturn]] void fail_no_object() const { throw Error(ErrorCode::bad_file, where_, "is not a JSON object"); }
  [[noreturn]] void fail_deeper() const {
    throw Error(ErrorCode::bad_file, reader_.where_of(member_), "is nested deeper than this kind of file goes");
  }

  FlatJson& reader_;
  const std::string& where_;
  int depth_ = 0;  // objects that are open
  bool in_list_ = false;
  std::string member_, field_;
};

void FlatJson::read(std::string_view text, const std::string& where) {
  Events events(*this, where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

}  // namespace banyan
