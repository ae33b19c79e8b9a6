// Finds wheels on a Python package index (the simple API: JSON as of PEP 691, or HTML as of PEP 503).
//
// Cost: one small download. Errors: kNotFound when the index lacks the package or version, kCorrupt when it
// offers the wheel without a SHA-256, kNetwork and others as io/http.h has them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "io/http.h"
#include "model/catalogue.h"

namespace rhapsode::model {

struct WheelLink {
  std::string url;
  std::string sha256;
};

// `index`: the simple API's address, as pip's --index-url takes it.
Result<WheelLink> find_wheel(const std::string& index, const PackagePart& part,
                             const std::function<bool()>& keep_going);

// The same on a page that is already here; `page_url` is what its links are relative to.
Result<WheelLink> find_wheel_on_page(const HttpDocument& page, const std::string& page_url,
                                     const PackagePart& part);

}  // namespace rhapsode::model
