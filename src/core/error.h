// error.h: the error that flashtile's own layers throw; src/api turns it into a status and a message.
#pragma once

#include <stdexcept>
#include <string>

#include "flashtile/flashtile.h"

namespace flashtile {

class Error : public std::runtime_error {
public:
    Error(flashtile_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    flashtile_status status() const noexcept { return status_; }

private:
    flashtile_status status_;
};

}  // namespace flashtile
