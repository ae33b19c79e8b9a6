// The wrapping of e-mail: header fields, transfer encodings, parts (RFC 5322, 2045-2047).
//
// Works on bytes; damaged input gives what can be read of it. Threads: any. Cost: O(bytes), no recursion.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rhapsode::text {

struct MailHeaders {
  // Unfolded, in the order of the file; names in lower case.
  std::vector<std::pair<std::string, std::string>> fields;

  // The first field of that name as it is written, else empty.
  std::string_view raw(std::string_view name) const;
  // The same with encoded words ("=?utf-8?Q?...?=") undone, as UTF-8 on one line.
  std::string readable(std::string_view name) const;
};

// Reads fields until an empty line and moves `bytes` behind it.
MailHeaders read_mail_headers(std::string_view& bytes);

// "text/html; charset=utf-8": the part before ';' in lower case, and a parameter's value without quotes.
std::string field_value(std::string_view field);
std::string field_parameter(std::string_view field, std::string_view name);

// What lies between the lines "--boundary"; a missing last one is forgiven.
std::vector<std::string_view> split_parts(std::string_view body, std::string_view boundary);

// By Content-Transfer-Encoding: base64 and quoted-printable are undone, anything else is as it is.
std::string decode_transfer(std::string_view body, std::string_view encoding);

}  // namespace rhapsode::text
