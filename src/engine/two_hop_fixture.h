// Two-hop questions over made-up facts among noise (case M12): for tests with tiny and with real models.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>

namespace rhapsode {

struct TwoHop {
  std::string question;
  std::string first, first_name;    // names the second's subject; both are texts with their file names
  std::string second, second_name;  // holds the answer, shares no word of weight with the question
};

// A name of two words that no other number has.
inline std::string made_up_name(int number) {
  constexpr std::array kFirst = {"Ilvo",   "Maret",   "Osker",  "Tamsin", "Perrin", "Quilla",
                                 "Rosvar", "Sedge",   "Ulric",  "Vesna",  "Wendel", "Yorick",
                                 "Zelma",  "Brannoc", "Calder", "Dorrit"};
  constexpr std::array kLast = {"Marrow", "Tellwyn", "Fennick", "Goswell", "Harkaway", "Jessop",  "Kindle",
                                "Lomax",  "Nettle",  "Orchard", "Pellam",  "Quarles",  "Rudyard", "Stainer",
                                "Thrale", "Umber",   "Vantage", "Wexley",  "Yarrow",   "Zoller"};
  return fmt::format("{} {}", kFirst[static_cast<size_t>(number) % kFirst.size()],
                     kLast[static_cast<size_t>(number) / kFirst.size() % kLast.size()]);
}

inline TwoHop two_hop(int number) {
  const std::string person = made_up_name(number), firm = made_up_name(160 + number) + " Works";
  const int year = 1901 + number;
  return {fmt::format("In which year was the employer of {} founded?", person),
          fmt::format("# {0}\n\n{0} keeps the accounts at {1} and plays the viola.\n", person, firm),
          fmt::format("people/{:03}.md", number),
          fmt::format("# {0}\n\nIt opened its doors in {1} with four looms and a cat.\n", firm, year),
          fmt::format("firms/{:03}.md", number)};
}

// Speaks of people, employers and years, and of nobody asked for.
inline std::string noise(int number) {
  const std::string person = made_up_name(40 + number % 110), place = fmt::format("Ward {}", number);
  return fmt::format(
      "# {1}\n\n{0} was an employer of many in {1}; in the year {2} the hall there was founded.\n", person,
      place, 1700 + number);
}

}  // namespace rhapsode
