// One member of an archive (zip, so also Python wheels; tar), streamed out by libarchive.
//
// Cost: reads the archive once, up to the member; memory does not grow with the member. Errors: kNotFound
// when the member is not there, kCorrupt when the archive is damaged, or what `on_bytes` returned.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"

namespace rhapsode {

Status extract_member(const std::filesystem::path& archive, const std::string& member,
                      const std::function<Status(std::span<const std::byte>)>& on_bytes);

}  // namespace rhapsode
