#include "text/message_mask.h"

#include <bitset>

#include "base/result.h"

namespace rhapsode::text {
namespace {

// Plane 15, U+F0000 to U+FFFFD: four bytes each, the first always F3, the second from B0.
constexpr size_t kCharacters = 0xFFFE;
constexpr size_t kCharacterBytes = 4;

std::string character(size_t index) {
  return {'\xF3', static_cast<char>(0xB0 | index >> 12), static_cast<char>(0x80 | (index >> 6 & 63)),
          static_cast<char>(0x80 | (index & 63))};
}

class FreeCharacters {
 public:
  void take_out(std::string_view text) {
    for (size_t at = 0; (at = text.find('\xF3', at)) != std::string_view::npos; ++at) {
      if (at + kCharacterBytes > text.size()) return;
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
      const size_t index = (byte(1) & 15u) << 12 | (byte(2) & 63u) << 6 | (byte(3) & 63u);
      if (byte(1) >= 0xB0 && index < kCharacters) used_.set(index);
    }
  }

  Result<std::string> next() {
    while (next_ < kCharacters && used_.test(next_)) ++next_;
    if (next_ == kCharacters) {
      return make_error(ErrorKind::kInvalidArgument,
                        "the messages hold every private-use character of plane 15");
    }
    return character(next_++);
  }

 private:
  std::bitset<kCharacters> used_;
  size_t next_ = 0;
};

}  // namespace

Result<MessageMask> MessageMask::apply(const ControlTokens& tokens, std::string_view template_source,
                                       std::vector<Message>& messages) {
  MessageMask mask;
  std::vector<std::vector<ControlMatch>> found;
  bool any = false;
  for (const Message& message : messages) {
    found.push_back(tokens.find(message.content, {{0, message.content.size()}}));
    any = any || !found.back().empty();
  }
  if (!any) return mask;
  FreeCharacters free;
  free.take_out(template_source);
  for (const Message& message : messages) free.take_out(message.content);
  std::map<std::string_view, std::string> characters;
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string masked;
    size_t begin = 0;
    for (const ControlMatch& match : found[i]) {
      std::string& standin = characters[match.token->name];
      if (standin.empty()) {
        RH_TRY(standin, free.next());
        mask.names_[standin] = match.token->name;
      }
      masked += messages[i].content.substr(begin, match.where.begin - begin) + standin;
      begin = match.where.end;
    }
    messages[i].content = masked + messages[i].content.substr(begin);
  }
  return mask;
}

std::vector<RenderedPart> MessageMask::remove(std::vector<RenderedPart> parts) const {
  if (names_.empty()) return parts;
  std::vector<RenderedPart> out;
  for (const RenderedPart& part : parts) {
    const std::string_view text = part.text;
    size_t begin = 0;
    for (size_t at = 0; (at = text.find('\xF3', at)) != std::string_view::npos;) {
      const auto name = names_.find(text.substr(at, kCharacterBytes));
      if (name == names_.end()) {
        ++at;
        continue;
      }
      out.push_back({std::string(text.substr(begin, at - begin)), part.from_message});
      out.push_back({name->second, /*from_message=*/true});
      begin = at += kCharacterBytes;
    }
    out.push_back({std::string(text.substr(begin)), part.from_message});
  }
  return out;
}

}  // namespace rhapsode::text
