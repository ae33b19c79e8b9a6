// One e-mail or a file of many (mbox): the fields people read, then the text.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text_check.h"
#include "text/charset.h"
#include "text/dates.h"
#include "text/document_fields.h"
#include "text/extractors.h"
#include "text/mime.h"
#include "text/readers.h"
#include "text/section_stack.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMostDepth = 16;  // of parts in parts
constexpr size_t kMostWarnings = 100;

// "From ada@example.org Thu Jul  5 10:30:00 2001" between the mails of an mbox.
bool is_mbox_line(std::string_view line) {
  if (!line.starts_with("From ") || line.size() < 12) return false;
  // A year or time; "From here on ..." in a text has none.
  return std::count_if(line.begin() + 5, line.end(), is_ascii_digit) >= 4;
}

// Where the mails begin: at their first field.
std::vector<std::string_view> split_mbox(std::string_view bytes) {
  if (bytes.empty() || !is_mbox_line(view(bytes, line_at(bytes, 0)))) return {bytes};
  std::vector<std::string_view> mails;
  size_t begin = std::string_view::npos;
  bool after_blank = true;
  for (size_t at = 0; at < bytes.size();) {
    const Line line = line_at(bytes, at);
    if (after_blank && is_mbox_line(view(bytes, line))) {
      if (begin != std::string_view::npos) mails.push_back(bytes.substr(begin, line.begin - begin));
      begin = line.next;
    }
    after_blank = line.blank;
    at = line.next;
  }
  mails.push_back(bytes.substr(begin));
  return mails;
}

// ">From " was written for lines that would have looked like the start of a mail.
std::string without_escapes(std::string text) {
  if (text.find(">From ") == std::string::npos) return text;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Line line = line_at(text, at);
    const std::string_view whole = std::string_view(text).substr(line.begin, line.next - line.begin);
    const size_t signs = std::min(whole.find_first_not_of('>'), whole.size());
    out += signs > 0 && whole.substr(signs).starts_with("From ") ? whole.substr(1) : whole;
    at = line.next;
  }
  return out;
}

class MailReader {
 public:
  explicit MailReader(std::string name) { document_.name = std::move(name); }

  Result<Document> read(std::string_view bytes) && {
    document_.kind = DocumentKind::kMessages;
    document_.extracted = true;
    bytes.remove_prefix(mark_bytes(bytes));
    const auto mails = split_mbox(bytes);
    many_ = mails.size() > 1;
    for (const std::string_view mail : mails) read_mail_text(mail);
    if (trim(document_.text).empty())
      return make_error(ErrorKind::kNotFound, "{} holds no text", document_.name);
    return std::move(document_);
  }

 private:
  void read_mail_text(std::string_view mail) {
    const MailHeaders headers = read_mail_headers(mail);
    const std::string body = body_of(headers, mail);
    if (headers.fields.empty() && trim(body).empty()) return;
    const std::string from = headers.readable("from");
    const std::string subject = shortened(headers.readable("subject"), 300);
    const std::string date = iso_date(headers.readable("date"));
    std::string& out = document_.text;
    if (!out.empty()) out += "\n\n";
    document_.breaks.push_back({out.size(), BreakStrength::kSection});
    document_.sections.push_back({out.size(), many_ ? heading(subject, from, date) : std::string()});
    if (!many_) {
      document_.title = subject;
      document_.author = clean_author(from);
    }
    if (document_.date.empty()) document_.date = date;
    add_field("From", from);
    add_field("To", shortened(headers.readable("to"), 200));
    add_field("Date", date.empty() ? shortened(headers.readable("date"), 100) : date);
    add_field("Subject", subject);
    out += '\n';
    out += trim(body);
    out += '\n';
  }

  void add_field(std::string_view name, const std::string& value) {
    if (!value.empty()) document_.text.append(name).append(": ").append(value).append("\n");
  }

  static std::string heading(const std::string& subject, const std::string& from, const std::string& date) {
    std::string who = shortened(clean_author(from), 60);
    if (!date.empty()) who += (who.empty() ? "" : ", ") + date;
    return shortened(subject, 100) + (who.empty() ? "" : " (" + who + ")");
  }

  struct Part {
    MailHeaders headers;
    std::string_view body;
    size_t depth;
  };

  // The texts of all parts in their order; of alternatives the plain one, else the last.
  std::string body_of(const MailHeaders& headers, std::string_view mail) {
    std::string out;
    std::vector<Part> open = {{headers, mail, 0}};
    while (!open.empty()) {
      const Part part = std::move(open.back());
      open.pop_back();
      const std::string_view type_field = part.headers.raw("content-type");
      const std::string type = field_value(type_field);
      const std::string boundary = field_parameter(type_field, "boundary");
      if (type.starts_with("multipart/") && !boundary.empty() && part.depth < kMostDepth) {
        open_parts(part, type, boundary, open);
      } else if (type == "message/rfc822" && part.depth < kMostDepth) {
        std::string_view inner = part.body;
        MailHeaders forwarded = read_mail_headers(inner);
        append(out, "Forwarded from: " + forwarded.readable("from") +
                        "\nSubject: " + forwarded.readable("subject"));
        open.push_back({std::move(forwarded), inner, part.depth + 1});
      } else if (auto text = text_of(part, type)) {
        append(out, trim(*text));
      }
    }
    return out;
  }

  static void append(std::string& out, std::string_view text) {
    if (text.empty()) return;
    if (!out.empty()) out += "\n\n";
    out += text;
  }

  static void open_parts(const Part& part, const std::string& type, const std::string& boundary,
                         std::vector<Part>& open) {
    std::vector<Part> parts;
    for (std::string_view bytes : split_parts(part.body, boundary)) {
      MailHeaders headers = read_mail_headers(bytes);
      parts.push_back({std::move(headers), bytes, part.depth + 1});
    }
    if (type == "multipart/alternative" && !parts.empty()) {
      const auto plain = std::find_if(parts.begin(), parts.end(), [](const Part& one) {
        const std::string kind = field_value(one.headers.raw("content-type"));
        return (kind.empty() || kind == "text/plain") && !trim(one.body).empty();
      });
      Part chosen = plain == parts.end() ? std::move(parts.back()) : std::move(*plain);
      open.push_back(std::move(chosen));
      return;
    }
    for (auto at = parts.rbegin(); at != parts.rend(); ++at) open.push_back(std::move(*at));
  }

  // nullopt: an attachment, which is reported.
  std::optional<std::string> text_of(const Part& part, const std::string& type) {
    const std::string_view disposition = part.headers.raw("content-disposition");
    const bool attached = field_value(disposition) == "attachment";
    const bool readable =
        type.empty() || type == "text/plain" || type == "text/html" || type.starts_with("multipart/");
    if (attached || !readable) {
      std::string name = field_parameter(disposition, "filename");
      if (name.empty()) name = field_parameter(part.headers.raw("content-type"), "name");
      warn(fmt::format("the attachment '{}' ({}) was not read", shown(name),
                       shown(type.empty() ? "text" : type)));
      return std::nullopt;
    }
    std::string bytes = decode_transfer(part.body, part.headers.raw("content-transfer-encoding"));
    const std::string charset = field_parameter(part.headers.raw("content-type"), "charset");
    auto decoded = decode_text(std::move(bytes), charset);
    if (!decoded.ok()) {
      warn(decoded.error().message);
      return std::string();
    }
    if (!decoded->warning.empty()) warn(decoded->warning);
    if (type != "text/html") return without_escapes(std::move(decoded->text));
    auto page = read_html(document_.name, decoded->text);
    return page.ok() ? std::move(page->text) : std::string();
  }

  void warn(std::string sentence) {
    if (document_.warnings.size() < kMostWarnings) document_.warnings.push_back(std::move(sentence));
  }

  Document document_;
  bool many_ = false;
};

}  // namespace

bool is_mail(std::string_view bytes) {
  bytes.remove_prefix(mark_bytes(bytes));
  constexpr size_t kMostBytes = 64 << 10;
  bytes = bytes.substr(0, kMostBytes);
  if (bytes.empty()) return false;
  const Line first = line_at(bytes, 0);
  if (is_mbox_line(view(bytes, first))) bytes.remove_prefix(first.next);
  const MailHeaders headers = read_mail_headers(bytes);
  const auto is_name = [](const auto& field) {
    return !field.first.empty() && field.first.find_first_of(" \t\"'/") == std::string::npos;
  };
  return std::all_of(headers.fields.begin(), headers.fields.end(), is_name) && !headers.raw("from").empty() &&
         (!headers.raw("date").empty() || !headers.raw("subject").empty());
}

Result<Document> read_mail(std::string name, std::string bytes) {
  return MailReader(std::move(name)).read(bytes);
}

}  // namespace rhapsode::text
