#include "store/recent_texts.h"

namespace rhapsode::store {

const std::string* RecentTexts::find(int64_t content) {
  const auto place = places_.find(content);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return &place->second->text;
}

const std::string& RecentTexts::insert(int64_t content, std::string text) {
  if (const auto place = places_.find(content); place != places_.end()) {
    bytes_ -= place->second->text.size();
    entries_.erase(place->second);
    places_.erase(place);
  }
  bytes_ += text.size();
  entries_.push_front({content, std::move(text)});
  places_[content] = entries_.begin();
  while (bytes_ > cap_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back().text.size();
    places_.erase(entries_.back().content);
    entries_.pop_back();
  }
  return entries_.front().text;
}

void RecentTexts::clear() {
  entries_.clear();
  places_.clear();
  bytes_ = 0;
}

}  // namespace rhapsode::store
