// Small PDF files for tests, byte by byte: one content stream a page, one font.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace rhapsode::test {

// `font` is the body of the font's dictionary; `extra` are whole objects from number 4 on, which it may name.
inline std::string make_pdf(const std::vector<std::string>& pages, const std::string& font,
                            const std::vector<std::string>& extra = {}) {
  std::vector<std::string> objects = {"<< /Type /Catalog /Pages 2 0 R >>", "",
                                      "<< /Type /Font " + font + " >>"};
  objects.insert(objects.end(), extra.begin(), extra.end());
  std::string kids;
  for (const std::string& page : pages) {
    objects.push_back(fmt::format("<< /Length {} >>\nstream\n{}\nendstream", page.size(), page));
    const size_t stream = objects.size();
    objects.push_back(
        fmt::format("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R "
                    "/Resources << /Font << /F1 3 0 R >> >> >>",
                    stream));
    kids += fmt::format("{} 0 R ", objects.size());
  }
  objects[1] = fmt::format("<< /Type /Pages /Kids [{}] /Count {} >>", kids, pages.size());
  std::string pdf = "%PDF-1.4\n";
  std::vector<size_t> offsets;
  for (size_t i = 0; i < objects.size(); ++i) {
    offsets.push_back(pdf.size());
    pdf += fmt::format("{} 0 obj\n{}\nendobj\n", i + 1, objects[i]);
  }
  const size_t table = pdf.size();
  pdf += fmt::format("xref\n0 {}\n0000000000 65535 f \n", objects.size() + 1);
  for (const size_t offset : offsets) pdf += fmt::format("{:010} 00000 n \n", offset);
  pdf +=
      fmt::format("trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{}\n%%EOF\n", objects.size() + 1, table);
  return pdf;
}

// A line of text at a place of the page, in points from the lower left corner.
inline std::string pdf_line(int x, int y, const std::string& text) {
  return fmt::format("BT /F1 12 Tf {} {} Td ({}) Tj ET\n", x, y, text);
}

inline const char* const kPdfHelvetica = "/Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding";

}  // namespace rhapsode::test
