// One Sandbox for all tests of a binary; where programs cannot be run the tests say that they are skipped.
#pragma once

#include <doctest/doctest.h>
#include <optional>
#include <string>

#include "banyan/code/sandbox.hpp"
#include "banyan/error.hpp"

inline const banyan::code::Sandbox* shared_sandbox() {
  static std::string why;
  static const std::optional<banyan::code::Sandbox> sandbox = []() -> std::optional<banyan::code::Sandbox> {
    try {
      return std::optional<banyan::code::Sandbox>(std::in_place);
    } catch (const banyan::Error& error) {
      why = error.what();
      return std::nullopt;
    }
  }();
  if (!sandbox) MESSAGE("skipped: " << why);
  return sandbox ? &*sandbox : nullptr;
}
