// A table of text: columns as wide as their widest cell, titles set apart, wide characters counted as two
// columns.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/terminal.h"

namespace rhapsode::cli {

struct Column {
  std::string title;
  bool right = false;    // numbers
  bool shrinks = false;  // a path: loses its beginning where the terminal is too narrow for the table
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns. Cells are shown as printable() makes them.
  void add(std::vector<std::string> cells);

  // Lines that end in '\n'. On a terminal they are clipped to its width, columns that shrink first;
  // elsewhere nothing is lost.
  std::string render(const Terminal& terminal) const;

 private:
  void shrink(std::vector<int>& widths, int room) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Lines "name  value", the names in a column of their own.
std::string render_pairs(const std::vector<std::pair<std::string, std::string>>& pairs,
                         const Terminal& terminal);

}  // namespace rhapsode::cli
