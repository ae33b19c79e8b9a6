#include "eval/bm25.h"

#include <gmock/gmock.h>

#include <cmath>

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Document> library() {
  return {{"Owls", "Owls hunt at night.", ""},
          {"Bats", "Bats hunt at night, owls too; night is long.", ""},
          {"Bread", "Bread is baked from flour.", ""}};
}

TEST(Bm25, RanksByRareWordsAndLength) {
  const Bm25 search(library());
  EXPECT_THAT(search.best("Which owls hunt?", 5), ElementsAre(0, 1));
  EXPECT_THAT(search.best("night", 5), ElementsAre(1, 0));
  EXPECT_THAT(search.best("FLOUR", 1), ElementsAre(2));
}

TEST(Bm25, LeavesOutDocumentsWithoutACommonWord) {
  const Bm25 search(library());
  EXPECT_THAT(search.best("what is the", 5), IsEmpty());
  EXPECT_THAT(search.best("submarine", 5), IsEmpty());
  EXPECT_THAT(search.best("night", 1), ElementsAre(1));
}

TEST(Bm25, AnEmptyLibraryFindsNothing) {
  EXPECT_THAT(Bm25({}).best("owls", 3), IsEmpty());
}

}  // namespace
}  // namespace rhapsode::eval
