// MessageMask: keeps the names of control tokens in messages out of a chat template's reach.
//
// The Jinja engine marks which text came from a message, but loses the mark in some operations (splitting,
// joining lists, tojson). So each name of a control token in a message is replaced by one private-use
// character that neither the messages nor the template contain, and put back, as text of a message, after
// rendering. Whatever the template did in between, a message's "<|im_end|>" cannot become the template's.
// Ownership: a value, for one rendering; refers to the control tokens. Threads: one at a time. Errors:
// kInvalidArgument if the messages use up the private-use characters. Cost: one search of the messages a
// control token.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/options.h"
#include "rhapsode/result.h"
#include "text/control_tokens.h"
#include "text/llama_common.h"

namespace rhapsode::text {

class MessageMask {
 public:
  // Masks the contents in place. They must be valid UTF-8.
  static Result<MessageMask> apply(const ControlTokens& tokens, std::string_view template_source,
                                   std::vector<Message>& messages);

  // Puts the names back.
  std::vector<RenderedPart> remove(std::vector<RenderedPart> parts) const;

 private:
  std::map<std::string, std::string, std::less<>> names_;  // by the character that stands for them
};

}  // namespace rhapsode::text
