// models/catalogue.json as it was at build time.
#pragma once

#include <string_view>

namespace rhapsode::model {

extern const std::string_view kCatalogueJson;

}  // namespace rhapsode::model
