#include "text/text_builder.h"

namespace rhapsode::text {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr size_t kMostTitleBytes = 200;

std::string shortened_title(std::string_view title) {
  std::string out;
  for (const char c : title) {
    if (kSpace.find(c) == std::string_view::npos) {
      out += c;
    } else if (!out.empty() && !out.ends_with(' ')) {
      out += ' ';
    }
  }
  if (out.size() > kMostTitleBytes) {
    size_t end = kMostTitleBytes;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0) == 0x80) --end;
    out.resize(end);
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace

void TextBuilder::flush() {
  if (wanted_line_feeds_ > 0 && !text_.empty()) {
    while (text_.ends_with(' ')) text_.pop_back();
    int have = 0;
    while (have < wanted_line_feeds_ && text_.size() > static_cast<size_t>(have) &&
           text_[text_.size() - 1 - static_cast<size_t>(have)] == '\n') {
      ++have;
    }
    text_.append(static_cast<size_t>(wanted_line_feeds_ - have), '\n');
    const auto strength = wanted_line_feeds_ > 1 ? BreakStrength::kParagraph : BreakStrength::kLine;
    if (breaks_.empty() || breaks_.back().offset < text_.size()) breaks_.push_back({text_.size(), strength});
  } else if (wanted_blank_ && !text_.empty() && !text_.ends_with('\n') && !text_.ends_with(' ')) {
    text_ += ' ';
  }
  wanted_line_feeds_ = 0;
  wanted_blank_ = false;
}

void TextBuilder::words(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin != 0) wanted_blank_ = true;
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kSpace));
    flush();
    text_ += word;
    text.remove_prefix(word.size());
  }
}

void TextBuilder::verbatim(std::string_view text) {
  if (text.empty()) return;
  flush();
  text_ += text;
}

size_t TextBuilder::start(BreakStrength strength) {
  if (!text_.empty()) wanted_line_feeds_ = std::max(wanted_line_feeds_, 1);
  flush();
  if (text_.empty()) return 0;
  if (breaks_.empty() || breaks_.back().offset < text_.size()) breaks_.push_back({text_.size(), strength});
  breaks_.back().strength = std::max(breaks_.back().strength, strength);
  return text_.size();
}

void TextBuilder::add_section(int level, std::string title, size_t begin) {
  while (!open_sections_.empty() && open_sections_.back().first >= level) open_sections_.pop_back();
  open_sections_.emplace_back(level, std::move(title));
  std::string path;
  for (const auto& [ignored, part] : open_sections_) {
    if (!path.empty()) path += " > ";
    path += part;
  }
  if (!sections_.empty() && sections_.back().begin == begin) sections_.pop_back();
  sections_.push_back({begin, std::move(path)});
}

void TextBuilder::heading(int level, size_t begin) {
  std::string title = shortened_title(from(std::min(begin, text_.size())));
  if (!title.empty()) add_section(level, std::move(title), begin);
}

size_t TextBuilder::start_part() {
  end_block();
  const size_t begin = start(BreakStrength::kSection);
  open_sections_.clear();
  if (!sections_.empty()) sections_.push_back({begin, {}});
  return begin;
}

void TextBuilder::name_part(size_t begin, std::string_view title) {
  std::string shortened = shortened_title(title);
  const bool headed = !sections_.empty() && sections_.back().begin >= begin && !sections_.back().path.empty();
  if (!headed && !shortened.empty() && begin < text_.size()) add_section(1, std::move(shortened), begin);
}

void TextBuilder::document(Document part) {
  end_block();
  const size_t begin = start(BreakStrength::kParagraph);
  verbatim(part.text);
  for (const BreakPoint& point : part.breaks) {
    if (point.offset > 0) breaks_.push_back({point.offset + begin, point.strength});
  }
  for (Section& section : part.sections) {
    if (!sections_.empty() && sections_.back().begin == section.begin + begin) sections_.pop_back();
    sections_.push_back({section.begin + begin, std::move(section.path)});
  }
  for (RowBlock& block : part.row_blocks) {
    block.begin += begin;
    block.end += begin;
    for (size_t& row : block.rows) row += begin;
    row_blocks_.push_back(std::move(block));
  }
  end_block();
}

bool TextBuilder::empty() const {
  return text_.find_first_not_of(kSpace) == std::string::npos;
}

void TextBuilder::finish(Document& document) {
  const size_t end = text_.find_last_not_of(kSpace);
  text_.resize(end == std::string::npos ? 0 : end + 1);
  const size_t size = text_.size();
  std::erase_if(breaks_, [size](const BreakPoint& point) { return point.offset >= size; });
  std::erase_if(sections_, [size](const Section& section) { return section.begin >= size; });
  std::erase_if(row_blocks_, [size](const RowBlock& block) { return block.begin >= size; });
  for (RowBlock& block : row_blocks_) {
    block.end = std::min(block.end, size);
    std::erase_if(block.rows, [size](size_t row) { return row >= size; });
  }
  for (size_t& page : page_starts_) page = std::min(page, size);
  document.text = std::move(text_);
  document.breaks = std::move(breaks_);
  document.sections = std::move(sections_);
  document.row_blocks = std::move(row_blocks_);
  document.page_starts = std::move(page_starts_);
  document.extracted = true;
}

}  // namespace rhapsode::text
