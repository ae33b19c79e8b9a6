// Names of sources as users see them: endings, and bytes that are no UTF-8 made visible. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace rhapsode::text {

// The part behind the last '/', in lower case (ASCII).
std::string lower_file_name(std::string_view name);
// The part behind the last '.' of the file name, in lower case: "md"; empty for "README" and ".profile".
std::string file_ending(std::string_view name);
// Well-formed UTF-8 without control characters: other bytes become \xNN.
std::string shown_name(std::string_view name);
// './a//b/' -> 'a/b', '.' -> ''; '..' stays, since a link may stand before it.
std::string normal_path(std::string_view path);
// The name of an archive's member below its archive: no leading '/', no '.', '..' or empty parts.
std::string normal_member(std::string_view member);

}  // namespace rhapsode::text
