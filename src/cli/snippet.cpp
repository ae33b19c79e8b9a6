#include "cli/snippet.h"

#include <fmt/format.h>

#include <functional>
#include <set>
#include <vector>

#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

bool is_space(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xA0 || c == 0x3000;
}

bool is_word(char32_t c) {
  const bool ascii = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  // Beyond ASCII: letters, but neither Latin-1's signs nor general, CJK and full-width punctuation.
  const bool sign = c < 0xC0 || (c >= 0x2000 && c <= 0x206F) || (c >= 0x3000 && c <= 0x303F) ||
                    (c >= 0xFF00 && c <= 0xFF0F);
  return ascii || (c >= 0x80 && !sign);
}

// Calls `use` with each word: a run of letters, lower-case in ASCII, or one wide character.
void each_word(std::string_view text, const std::function<void(std::string)>& use) {
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) use(std::move(word));
    word.clear();
  };
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t c = next_code_point(text);
    const bool wide = code_point_width(c) == 2;
    if (!is_word(c) || wide) flush();
    if (!is_word(c)) continue;
    if (c < 0x80) {
      word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    } else {
      word += before.substr(0, before.size() - text.size());
    }
    if (wide) flush();
  }
  flush();
}

std::vector<std::string_view> sentences_of(std::string_view text) {
  std::vector<std::string_view> sentences;
  size_t begin = 0;
  std::string_view rest = text;
  char32_t last = 0;
  while (!rest.empty()) {
    const size_t at = text.size() - rest.size();
    const char32_t c = next_code_point(rest);
    const bool stop = last == '.' || last == '!' || last == '?';
    const bool wide_stop = last == U'。' || last == U'！' || last == U'？';
    // A blank line, and what Markdown begins a line with: a row, an item, a heading. A heading is a line.
    const bool new_block = last == '\n' && (c == '\n' || c == '|' || c == '#' || c == '-' || c == '*');
    if ((stop && is_space(c)) || wide_stop || new_block || (last == '\n' && text[begin] == '#')) {
      sentences.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    last = c;
  }
  sentences.push_back(text.substr(begin));
  return sentences;
}

}  // namespace

std::string flattened(std::string_view text) {
  std::string line;
  bool gap = false;
  while (!text.empty()) {
    const std::string_view before = text;
    if (is_space(next_code_point(text))) {
      gap = !line.empty();
      continue;
    }
    if (gap) line += ' ';
    gap = false;
    line += before.substr(0, before.size() - text.size());
  }
  return line;
}

std::string best_sentence(std::string_view text, std::string_view question) {
  std::set<std::string> asked;
  each_word(question, [&](std::string word) { asked.insert(std::move(word)); });
  std::string best;
  size_t most = 0;
  for (const std::string_view sentence : sentences_of(text)) {
    std::set<std::string> shared;
    each_word(sentence, [&](std::string word) {
      if (asked.contains(word)) shared.insert(std::move(word));
    });
    size_t weight = 0;
    for (const std::string& word : shared) weight += word.size();
    const std::string line = flattened(sentence);
    // A heading says what the passage is about, but only when that was asked for.
    const bool first = (best.empty() || (most == 0 && best.starts_with('#'))) && !line.empty();
    if (first || weight > most) {
      best = line;
      most = weight;
    }
  }
  return best;
}

std::string place_in_source(const std::string& source, int line, int page) {
  const std::string place = fmt::format("{}:{}", source, line);
  return page > 0 ? fmt::format("{} (page {})", place, page) : place;
}

}  // namespace rhapsode::cli
