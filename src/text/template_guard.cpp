#include "text/template_guard.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 10;
constexpr size_t kMaxTagTokens = 1500;  // words and signs of one tag; strings and spaces do not nest
constexpr int kMaxDepth = 100;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

class Guard {
 public:
  explicit Guard(std::string_view source) : source_(source) {}

  Status run() {
    if (source_.size() > kMaxBytes) {
      return make_error(ErrorKind::kUnsupported, "the chat template has {} bytes; at most {} are supported",
                        source_.size(), kMaxBytes);
    }
    while ((pos_ = source_.find('{', pos_)) != std::string_view::npos) {
      const std::string_view opening = source_.substr(pos_, 2);
      if (opening == "{#") {
        pos_ = std::min(source_.find("#}", pos_), source_.size());
      } else if (opening == "{{" || opening == "{%") {
        RH_TRY_STATUS(tag(opening == "{{" ? "}}" : "%}"));
      } else {
        ++pos_;
      }
    }
    return check_calls();
  }

 private:
  struct Use {
    int inside;  // the macro whose body this is in
    std::string name;
    bool is_call;
    size_t at;
  };

  Error refuse(size_t at, std::string_view what) const {
    const auto line = std::count(source_.begin(), source_.begin() + static_cast<ptrdiff_t>(at), '\n') + 1;
    return make_error(ErrorKind::kUnsupported, "the chat template, line {}: {}", line, what);
  }

  // Reads one tag up to its closing sign, which strings may contain too.
  Status tag(std::string_view closing) {
    const size_t begin = pos_;
    pos_ += 2;
    std::vector<std::string> words;
    size_t tokens = 0;
    bool assigns = false;
    while (pos_ < source_.size() && source_.substr(pos_, 2) != closing) {
      const char c = source_[pos_];
      if (std::isspace(static_cast<unsigned char>(c))) {
        ++pos_;
        continue;
      }
      if (++tokens > kMaxTagTokens) return refuse(begin, "an expression is too long");
      if (c == '"' || c == '\'') {
        skip_string(c);
      } else if (is_name(c)) {
        const size_t start = pos_;
        while (pos_ < source_.size() && is_name(source_[pos_])) ++pos_;
        words.emplace_back(source_.substr(start, pos_ - start));
        const size_t next = source_.find_first_not_of(" \t\r\n", pos_);
        const bool is_call = next != std::string_view::npos && source_[next] == '(';
        const bool is_definition = words.size() == 2 && words[0] == "macro" && closing == "%}";
        if (!is_definition) uses_.push_back({current_macro(), words.back(), is_call, start});
      } else {
        assigns = assigns || c == '=';
        ++pos_;
      }
    }
    return closing == "%}" && !words.empty() ? block(words, assigns, begin) : Status();
  }

  void skip_string(char quote) {
    for (++pos_; pos_ < source_.size() && source_[pos_] != quote; ++pos_) {
      if (source_[pos_] == '\\') ++pos_;
    }
    ++pos_;
  }

  Status block(const std::vector<std::string>& words, bool assigns, size_t begin) {
    static constexpr std::array<std::string_view, 6> kOpeners = {"if",   "for",    "macro",
                                                                 "call", "filter", "generation"};
    const std::string& word = words[0];
    const bool opens =
        std::find(kOpeners.begin(), kOpeners.end(), word) != kOpeners.end() || (word == "set" && !assigns);
    if (word.starts_with("end")) {
      if (!open_.empty()) open_.pop_back();
    } else if (opens) {
      const bool is_macro = word == "macro" && words.size() > 1;
      if (is_macro) macros_[words[1]] = macro_count_;
      open_.push_back(is_macro ? macro_count_++ : current_macro());
      if (open_.size() > static_cast<size_t>(kMaxDepth)) return refuse(begin, "blocks nest too deeply");
    } else if (word == "elif" && ++elifs_ > 1000) {
      return refuse(begin, "there are too many 'elif'");
    }
    return {};
  }

  int current_macro() const { return open_.empty() ? -1 : open_.back(); }

  // A macro's body may call only macros that were finished before it, by their own names.
  Status check_calls() const {
    for (const Use& use : uses_) {
      const auto macro = macros_.find(use.name);
      if (macro == macros_.end()) continue;
      if (!use.is_call)
        return refuse(use.at, fmt::format("macro '{}' is used without being called", use.name));
      if (use.inside >= 0 && macro->second >= use.inside) {
        return refuse(use.at, fmt::format("macro '{}' may call itself", use.name));
      }
    }
    return {};
  }

  std::string_view source_;
  size_t pos_ = 0;
  int macro_count_ = 0;
  int elifs_ = 0;
  std::map<std::string, int> macros_;  // by name: the index of the last definition
  std::vector<int> open_;              // for each open block the macro it belongs to, -1 for none
  std::vector<Use> uses_;
};

}  // namespace

Status check_template(std::string_view source) {
  return Guard(source).run();
}

}  // namespace rhapsode::text
