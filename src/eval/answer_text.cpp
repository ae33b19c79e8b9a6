#include "eval/answer_text.h"

#include <utf8proc.h>

#include <cstring>

namespace rhapsode::eval {
namespace {

constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

// One code point at a time; a byte that begins none is handed out as itself, negative.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) : text_(text) {}

  bool next(utf8proc_int32_t& point, std::string_view& bytes) {
    if (at_ >= text_.size()) return false;
    const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text_.data()) + at_;
    const utf8proc_ssize_t length =
        utf8proc_iterate(begin, static_cast<utf8proc_ssize_t>(text_.size() - at_), &point);
    const size_t taken = length > 0 ? static_cast<size_t>(length) : 1;
    if (length <= 0) point = -1;
    bytes = text_.substr(at_, taken);
    at_ += taken;
    return true;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

void append(std::string& out, utf8proc_int32_t point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

// Letters and numbers: what stands on one side of a word's border.
bool is_word(utf8proc_int32_t point) {
  if (point < 0) return false;
  const utf8proc_category_t category = utf8proc_category(point);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_space(utf8proc_int32_t point) {
  if (point < 0) return false;
  if (point >= 0x1c && point <= 0x1f) return true;
  if ((point >= '\t' && point <= '\r') || point == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(point);
  return category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
}

bool is_article(std::string_view word) {
  return word == "a" || word == "an" || word == "the";
}

std::string lower_without_punctuation(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  CodePoints points(text);
  utf8proc_int32_t point = 0;
  for (std::string_view bytes; points.next(point, bytes);) {
    if (point < 0) {
      out += bytes;
    } else if (point >= 128 || kPunctuation.find(static_cast<char>(point)) == std::string_view::npos) {
      append(out, utf8proc_tolower(point));
    }
  }
  return out;
}

// An article is a whole run of letters and numbers, so that "a–b" loses its a, and "thé" keeps its th.
std::string without_articles(std::string_view text) {
  std::string out, word;
  const auto end_word = [&] {
    if (is_article(word)) word = " ";
    out += word;
    word.clear();
  };
  CodePoints points(text);
  utf8proc_int32_t point = 0;
  for (std::string_view bytes; points.next(point, bytes);) {
    if (is_word(point)) {
      word += bytes;
    } else {
      end_word();
      out += bytes;
    }
  }
  end_word();
  return out;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  CodePoints points(text);
  utf8proc_int32_t point = 0;
  for (std::string_view bytes; points.next(point, bytes);) {
    if (!is_space(point)) {
      word += bytes;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

}  // namespace

std::vector<std::string> answer_words(std::string_view text) {
  return split(without_articles(lower_without_punctuation(text)));
}

std::string normalise_answer(std::string_view text) {
  std::string out;
  for (const std::string& word : answer_words(text)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

std::string answer_of_reply(std::string_view reply, std::string_view mark) {
  const size_t marked = mark.empty() ? std::string_view::npos : reply.rfind(mark);
  if (marked != std::string_view::npos) reply.remove_prefix(marked + mark.size());
  std::string_view answer = trimmed(reply);
  answer = trimmed(answer.substr(0, answer.find('\n')));
  constexpr std::string_view kLabel = "Answer:";
  if (answer.size() > kLabel.size() && answer.starts_with(kLabel)) {
    answer = trimmed(answer.substr(kLabel.size()));
  }
  if (answer.size() > 1 && answer.ends_with('.')) answer.remove_suffix(1);
  return std::string(answer);
}

}  // namespace rhapsode::eval
