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
// With about 1 KiB of stack a level, these keep a rendering below 128 MiB.
constexpr size_t kMaxTagTokens = 1000;  // words and signs of one tag; strings and spaces do not nest
constexpr int kMaxDepth = 100;
constexpr int kMaxCallDepth = 16;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

class Guard {
 public:
  explicit Guard(std::string_view source) : source_(source) {}

  Result<GuardedTemplate> run() {
    if (source_.size() > kMaxBytes) {
      return make_error(ErrorKind::kUnsupported, "the chat template has {} bytes; at most {} are supported",
                        source_.size(), kMaxBytes);
    }
    if (source_.find(kCallCounter) != std::string_view::npos) {
      return make_error(ErrorKind::kUnsupported, "the chat template uses the reserved name '{}'",
                        kCallCounter);
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
    if (may_recurse()) return GuardedTemplate{with_counters(), true, true};
    if (call_depth() > kMaxCallDepth) {
      return make_error(ErrorKind::kUnsupported, "the chat template's macros call each other over {} deep",
                        kMaxCallDepth);
    }
    return GuardedTemplate{std::string(source_), false, macro_count_ > 0};
  }

 private:
  struct Use {
    int inside;  // the macro whose body this is in, -1 for none
    std::string name;
    bool is_call;
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
        if (!is_definition) uses_.push_back({current_macro(), words.back(), is_call});
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
      if (is_macro && pos_ < source_.size()) macro_tag_ends_.push_back(pos_ + 2);
      open_.push_back(is_macro ? macro_count_++ : current_macro());
      if (open_.size() > static_cast<size_t>(kMaxDepth)) return refuse(begin, "blocks nest too deeply");
    } else if (word == "elif" && ++elifs_ > 1000) {
      return refuse(begin, "there are too many 'elif'");
    }
    return {};
  }

  int current_macro() const { return open_.empty() ? -1 : open_.back(); }

  // It may not if each macro's body calls only macros that were finished before it, by their own names.
  bool may_recurse() const {
    return std::any_of(uses_.begin(), uses_.end(), [this](const Use& use) {
      const auto macro = macros_.find(use.name);
      return macro != macros_.end() && (!use.is_call || (use.inside >= 0 && macro->second >= use.inside));
    });
  }

  // Without recursion, each macro calls only earlier ones.
  int call_depth() const {
    std::vector<int> depths(static_cast<size_t>(macro_count_), 1);
    for (const Use& use : uses_) {  // in the order of the source: a macro's callees are complete before it
      const auto macro = macros_.find(use.name);
      if (macro == macros_.end() || use.inside < 0) continue;
      int& depth = depths[static_cast<size_t>(use.inside)];
      depth = std::max(depth, 1 + depths[static_cast<size_t>(macro->second)]);
    }
    return depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
  }

  // The counting tags strip white space as the macro's own tag does, so that the rendered text stays the
  // same.
  std::string with_counters() const {
    std::string guarded;
    size_t begin = 0;
    for (const size_t end : macro_tag_ends_) {
      const std::string_view strip = source_[end - 3] == '-' ? "-" : "";
      guarded += source_.substr(begin, end - begin);
      guarded += fmt::format(
          "{{%{0} set {1}.count = {1}.count + 1 {0}%}}{{%{0} if {1}.count > 100 {0}%}}"
          "{{{{ raise_exception('its macros call each other too often') }}}}{{%{0} endif {0}%}}",
          strip, kCallCounter);
      begin = end;
    }
    return guarded.append(source_.substr(begin));
  }

  std::string_view source_;
  size_t pos_ = 0;
  int macro_count_ = 0;
  int elifs_ = 0;
  std::map<std::string, int> macros_;  // by name: the index of the last definition
  std::vector<int> open_;              // for each open block the macro it belongs to, -1 for none
  std::vector<size_t> macro_tag_ends_;
  std::vector<Use> uses_;
};

}  // namespace

Result<GuardedTemplate> guard_template(std::string_view source) {
  return Guard(source).run();
}

}  // namespace rhapsode::text
