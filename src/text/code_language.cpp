#include <array>

#include "text/code_outline.h"
#include "text/readers.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

CodeLanguage braces(std::string_view name, std::string_view endings) {
  CodeLanguage language{name, endings, CodeShape::kBraces};
  return language;
}

CodeLanguage c_family(std::string_view name, std::string_view endings) {
  CodeLanguage language = braces(name, endings);
  language.preprocessor = true;
  return language;
}

CodeLanguage line_family(std::string_view name, std::string_view endings) {
  CodeLanguage language = braces(name, endings);
  language.newline_ends = language.triple_string = language.backtick_string = true;
  return language;
}

CodeLanguage script(std::string_view name, std::string_view endings, CodeShape shape) {
  CodeLanguage language{name, endings, shape};
  language.quote_string = language.hash_comment = true;
  return language;
}

std::array<CodeLanguage, 28> make_languages() {
  CodeLanguage javascript = line_family("javascript", " js mjs cjs jsx ");
  javascript.quote_string = true;
  CodeLanguage typescript = javascript;
  typescript.name = "typescript";
  typescript.endings = " ts tsx mts cts ";
  CodeLanguage java = braces("java", " java ");
  java.triple_string = true;
  CodeLanguage csharp = c_family("csharp", " cs ");
  csharp.triple_string = true;
  CodeLanguage php = script("php", " php ", CodeShape::kBraces);
  CodeLanguage perl = script("perl", " pl pm ", CodeShape::kBraces);
  CodeLanguage dart = braces("dart", " dart ");
  dart.quote_string = dart.triple_string = true;
  CodeLanguage scala = line_family("scala", " scala sc ");
  scala.backtick_string = false;
  return {c_family("c", " c "),
          c_family("cpp", " h cc cpp cxx c++ hh hpp hxx inl ipp cu cuh mm m "),
          java,
          javascript,
          typescript,
          csharp,
          php,
          perl,
          dart,
          scala,
          line_family("go", " go "),
          line_family("kotlin", " kt kts "),
          line_family("swift", " swift "),
          braces("rust", " rs "),
          braces("groovy", " groovy gradle "),
          braces("proto", " proto "),
          script("python", " py pyi pyx pyw bzl ", CodeShape::kIndent),
          script("ruby", " rb rake gemspec ", CodeShape::kIndent),
          script("elixir", " ex exs ", CodeShape::kIndent),
          script("julia", " jl ", CodeShape::kIndent),
          script("shell", " sh bash zsh fish ksh ", CodeShape::kIndent),
          script("nim", " nim ", CodeShape::kIndent),
          CodeLanguage{"lua", " lua ", CodeShape::kIndent},
          CodeLanguage{"sql", " sql ddl psql ", CodeShape::kSql},
          script("config", " yaml yml toml ini cfg conf cmake mk make dockerfile tf hcl properties r ",
                 CodeShape::kData),
          CodeLanguage{"json", " json json5 jsonc geojson ", CodeShape::kData},
          CodeLanguage{"style", " css scss sass less ", CodeShape::kData},
          CodeLanguage{"code",
                       " hs ml mli clj cljs erl fs fsx vb pas f90 f asm s lisp el scm vue svelte zig v vhd "
                       "bat ps1 awk xml xsd xsl svg graphql gql ",
                       CodeShape::kData}};
}

const std::array<CodeLanguage, 28>& languages() {
  static const std::array<CodeLanguage, 28> all = make_languages();
  return all;
}

const CodeLanguage* by_ending(std::string_view ending) {
  constexpr size_t kLongest = 12;
  if (ending.empty() || ending.size() > kLongest) return nullptr;
  const std::string wanted = " " + ascii_lower(ending) + " ";
  for (const CodeLanguage& language : languages()) {
    if (language.endings.find(wanted) != std::string_view::npos) return &language;
  }
  return nullptr;
}

const CodeLanguage* by_name(std::string_view wanted) {
  for (const CodeLanguage& language : languages()) {
    if (language.name == wanted) return &language;
  }
  return nullptr;
}

// "#!/usr/bin/env python3".
const CodeLanguage* by_interpreter(std::string_view text) {
  if (!text.starts_with("#!")) return nullptr;
  const std::string_view line = view(text, line_at(text, 0));
  constexpr std::array<std::array<std::string_view, 2>, 7> kInterpreters = {{{"python", "python"},
                                                                             {"node", "javascript"},
                                                                             {"ruby", "ruby"},
                                                                             {"perl", "perl"},
                                                                             {"php", "php"},
                                                                             {"lua", "lua"},
                                                                             {"sh", "shell"}}};
  for (const auto& [program, language] : kInterpreters) {
    if (line.find(program) != std::string_view::npos) return by_name(language);
  }
  return nullptr;
}

}  // namespace

const CodeLanguage* find_language(std::string_view name, std::string_view text) {
  const size_t slash = name.find_last_of("/\\");
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  const size_t dot = name.rfind('.');
  if (dot != std::string_view::npos && dot > 0) return by_ending(name.substr(dot + 1));
  if (name == "Makefile" || name == "Dockerfile" || name == "GNUmakefile") return by_name("config");
  if (name == "Rakefile" || name == "Gemfile") return by_name("ruby");
  return by_interpreter(text);
}

std::string_view code_language(std::string_view name, std::string_view text) {
  const CodeLanguage* language = find_language(name, text);
  return language ? language->name : std::string_view();
}

}  // namespace rhapsode::text
