#include "store/recent_texts.h"

#include <gtest/gtest.h>

namespace rhapsode::store {
namespace {

TEST(RecentTexts, KeepsWhatWasReadLastUnderItsCap) {
  RecentTexts texts(10);
  texts.insert(1, "aaaa");
  texts.insert(2, "bbbb");
  ASSERT_NE(texts.find(1), nullptr);  // now the most recent
  texts.insert(3, "cccc");
  EXPECT_EQ(texts.find(2), nullptr);
  ASSERT_NE(texts.find(1), nullptr);
  EXPECT_EQ(*texts.find(1), "aaaa");
  EXPECT_EQ(*texts.find(3), "cccc");
  EXPECT_EQ(texts.bytes(), 8u);
}

TEST(RecentTexts, ATextAboveTheCapIsKeptAlone) {
  RecentTexts texts(10);
  texts.insert(1, "aaaa");
  EXPECT_EQ(texts.insert(2, std::string(20, 'b')), std::string(20, 'b'));
  EXPECT_EQ(texts.find(1), nullptr);
  texts.insert(3, "cc");
  EXPECT_EQ(texts.find(2), nullptr);
  EXPECT_EQ(texts.bytes(), 2u);
}

TEST(RecentTexts, ReplacesAndForgets) {
  RecentTexts texts(10);
  texts.insert(1, "aaaa");
  texts.insert(1, "bb");
  EXPECT_EQ(*texts.find(1), "bb");
  EXPECT_EQ(texts.bytes(), 2u);
  texts.clear();
  EXPECT_EQ(texts.find(1), nullptr);
  EXPECT_EQ(texts.bytes(), 0u);
}

}  // namespace
}  // namespace rhapsode::store
