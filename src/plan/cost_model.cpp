#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "banyan/error.hpp"
#include "banyan/plan.hpp"
#include "banyan/read_file.hpp"

namespace banyan {

namespace {

double positive(const nlohmann::json& json, const char* field, bool may_be_zero, const std::string& path) {
  const auto it = json.find(field);
  if (it == json.end() || !it->is_number()) {
    throw Error(ErrorCode::bad_file, path, std::string(field) + " must be a number; run `banyan calibrate` again");
  }
  const double value = it->get<double>();
  if (!(value > 0) && !(may_be_zero && value == 0)) {
    throw Error(ErrorCode::bad_file, path,
                std::string(field) + " is " + it->dump() + ", but must be positive; run `banyan calibrate` again");
  }
  return value;
}

}  // namespace

CostModel load_cost_model(const std::string& path) {
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) throw Error(ErrorCode::bad_file, path, "is no JSON object; run `banyan calibrate` again");
  CostModel model;
  model.call_us = positive(json, "call_us", true, path);
  model.bytes_per_us = positive(json, "bytes_per_us", false, path);
  model.flops_per_us = positive(json, "flops_per_us", false, path);
  const auto machine = json.find("machine");
  if (machine == json.end() || !machine->is_string()) {
    throw Error(ErrorCode::bad_file, path, "machine must be a text; run `banyan calibrate` again");
  }
  model.machine = machine->get<std::string>();
  return model;
}

void save_cost_model(const CostModel& model, const std::string& path) {
  const nlohmann::json json = {{"call_us", model.call_us},
                               {"bytes_per_us", model.bytes_per_us},
                               {"flops_per_us", model.flops_per_us},
                               {"machine", model.machine}};
  std::ofstream out(path);
  out << std::setw(2) << json << '\n';
  out.close();
  if (!out) throw Error(ErrorCode::bad_file, path, "cannot be written");
}

}  // namespace banyan
