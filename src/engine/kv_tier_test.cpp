// The tiers of stored KV: whichever one it comes from, the same pages are read.
#include "recall/kv_tier.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/page_difference.h"
#include "engine/passes_fixture.h"
#include "store/catalog_fixture.h"

namespace rhapsode {
namespace {

using recall::KvTier;
using recall::KvTierOptions;
using recall::PassageTokens;

constexpr int kPassages = 12;
constexpr int kPages = 2;  // of each passage

// Memory whose copies of begin_copies_in() arrive when they are waited for, and not sooner.
class LateMemory final : public kernels::PageMemory {
 public:
  struct State {
    uint64_t begun = 0;
    int on_the_way = 0;
    bool fails = false;
  };
  explicit LateMemory(State& state) : state_(state) {}
  Result<std::byte*> reserve(size_t bytes) override { return host_->reserve(bytes); }
  bool host_addressable() const override { return true; }
  uint64_t suggested_bytes() const override { return host_->suggested_bytes(); }
  Status copy_in(std::byte* to, std::span<const std::byte> from) override { return host_->copy_in(to, from); }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    return host_->copy_out(from, to);
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    return host_->copy_within(from, to, bytes);
  }
  Result<std::unique_ptr<kernels::PageArrival>> begin_copies_in(std::span<const CopyIn> copies) override {
    return std::unique_ptr<kernels::PageArrival>(
        std::make_unique<Arrival>(state_, std::vector<CopyIn>(copies.begin(), copies.end())));
  }

 private:
  class Arrival final : public kernels::PageArrival {
   public:
    Arrival(State& state, std::vector<CopyIn> copies)
        : state_(state), copies_(std::move(copies)), number_(++state.begun) {
      ++state_.on_the_way;
    }
    ~Arrival() override { static_cast<void>(Arrival::finish()); }
    uint64_t number() const override { return number_; }
    Status finish() override {
      if (finished_) return {};
      finished_ = true;
      --state_.on_the_way;
      if (state_.fails) return make_error(ErrorKind::kInternal, "garbled on the way");
      for (const CopyIn& copy : copies_) std::copy(copy.from.begin(), copy.from.end(), copy.to);
      return {};
    }

   private:
    State& state_;
    std::vector<CopyIn> copies_;
    uint64_t number_;
    bool finished_ = false;
  };
  State& state_;
  std::unique_ptr<kernels::PageMemory> host_ = kernels::host_page_memory();
};

class KvTierTest : public PassesFixture {
 protected:
  void SetUp() override {
    PassesFixture::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    folder_.emplace();
    store::CatalogOptions options;
    options.folder = folder_->path() / "memory";
    options.create = true;
    auto catalog = store::Catalog::open(options);
    ASSERT_TRUE(catalog.ok()) << catalog.error().message;
    catalog_ = std::move(*catalog);
    ASSERT_TRUE(store::add(*catalog_, {"a.txt", store::lines("tier", kPassages)}).ok());
    ids_ = *catalog_->visible_passages({});
    ASSERT_EQ(ids_.size(), static_cast<size_t>(kPassages));
    for (int i = 0; i < kPassages; ++i) {
      PassageTokens passage;
      for (int t = 0; t < 70 + i; ++t) passage.tokens.push_back(20 + (i * 31 + t * 37) % 200);
      passage.header_tokens = 5;
      passage.text_tokens = static_cast<int>(passage.tokens.size()) - 5;
      texts_.push_back(std::move(passage));
    }
    ram_ = store::PagePool::create(runner_->kv_shape(), 4 << 20).value();
  }

  struct Folder : test::TemporaryFolder {
    const std::filesystem::path& path() const { return folder_; }
    void TestBody() override {}
  };

  KvTierOptions options(bool ram = true) {
    return {kernels::KvType::kF32, ram ? ram_.get() : nullptr, /*threads=*/3};
  }
  std::unique_ptr<KvTier> tier(const KvTierOptions& options) {
    return std::make_unique<KvTier>(*passes_, *encoder_, "print-tier", options);
  }

  using Pages = std::vector<std::vector<store::PagePin>>;
  std::vector<recall::KvWanted> wanted(int first, int count) {
    std::vector<recall::KvWanted> wanted;
    for (int i = first; i < first + count; ++i) {
      wanted.push_back({ids_[static_cast<size_t>(i)], &texts_[static_cast<size_t>(i)]});
    }
    return wanted;
  }
  Pages load(KvTier& tier, int first, int count) {
    recall::KvUpkeep upkeep;
    upkeep.keep = [&](std::span<const store::KvRecord> made) {
      kept_ += made.size();
      EXPECT_TRUE(catalog_->put_kv("print-tier", made).ok());
    };
    auto pages = tier.load(*catalog_, wanted(first, count), upkeep);
    EXPECT_TRUE(pages.ok()) << pages.error().message;
    return pages.ok() ? std::move(*pages) : Pages{};
  }
  // Whose passages are in the host's tier and nowhere else.
  std::unique_ptr<KvTier> tier_with_late_pages() {
    open(/*deterministic=*/false, std::make_unique<LateMemory>(late_));
    auto tier = this->tier(options());
    load_all(*tier);
    tier->reclaim(1000);
    EXPECT_EQ(late_.begun, 0u);
    return tier;
  }
  recall::LoadedKv begin_all(KvTier& tier) {
    auto loaded = tier.begin_load(*catalog_, wanted(0, kPassages), {});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return loaded.ok() ? std::move(*loaded) : recall::LoadedKv{};
  }
  Pages load_all(KvTier& tier) { return load(tier, 0, kPassages); }

  void expect_same(const Pages& a, const Pages& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const auto tokens = static_cast<int>(texts_[i].tokens.size());
      EXPECT_LT(engine::page_difference(runner_->kv_shape(), a[i], b[i], tokens).value(), 1e-5) << i;
      for (size_t p = 0; p < a[i].size(); ++p) {
        EXPECT_EQ(a[i][p]->count, b[i][p]->count);
        EXPECT_EQ(a[i][p]->positions, b[i][p]->positions);
      }
    }
  }

  void adjust(engine::RunnerOptions& options) const override { options.devices = devices_; }

  int devices_ = 1;
  LateMemory::State late_;
  std::optional<Folder> folder_;
  std::unique_ptr<store::Catalog> catalog_;
  std::vector<int64_t> ids_;
  std::vector<PassageTokens> texts_;
  std::unique_ptr<store::PagePool> ram_;
  size_t kept_ = 0;
};

TEST_F(KvTierTest, EveryTierGivesTheSamePages) {
  auto first = tier(options());
  const Pages made = load_all(*first);
  EXPECT_EQ(first->stats().encoded, kPassages);
  EXPECT_EQ(kept_, static_cast<size_t>(kPassages));
  EXPECT_EQ(first->stats().ram_bytes, first->stats().bytes);
  load_all(*first);
  EXPECT_EQ(first->stats().memory_hits, kPassages);

  EXPECT_EQ(first->reclaim(1000), 0) << "pages that are read are nobody's to take";
  auto second = tier(options(/*ram=*/false));
  const Pages from_disk = load_all(*second);
  EXPECT_EQ(second->stats().disk_hits, kPassages);
  EXPECT_EQ(second->stats().encoded, 0u);
  EXPECT_EQ(second->stats().ram_bytes, 0u);
  expect_same(made, from_disk);
}

// Whether they come from text, from the host or from a disk.
TEST_F(KvTierTest, PassagesAreSpreadOverDevicesAndStayWhole) {
  devices_ = 3;
  open(/*deterministic=*/false);
  const auto expect_spread = [](const Pages& passages) {
    std::map<int, int> pages_of;
    for (const auto& passage : passages) {
      for (const store::PagePin& page : passage) EXPECT_EQ(page->device, passage.front()->device);
      pages_of[passage.front()->device] += static_cast<int>(passage.size());
    }
    EXPECT_EQ(pages_of.size(), 3u);
    for (const auto& [device, pages] : pages_of) EXPECT_GE(pages, kPassages * kPages / 4) << device;
  };
  auto first = tier(options());
  const Pages made = load_all(*first);
  expect_spread(made);
  first->clear();
  auto second = tier(options(/*ram=*/false));
  const Pages from_disk = load_all(*second);
  EXPECT_EQ(second->stats().disk_hits, kPassages);
  expect_spread(from_disk);
  expect_same(made, from_disk);
  auto third = tier(options());
  load_all(*third);
  third->reclaim(1000);
  const Pages from_ram = load_all(*third);
  EXPECT_EQ(third->stats().ram_hits, static_cast<uint64_t>(kPassages));
  expect_spread(from_ram);
  expect_same(made, from_ram);
}

TEST_F(KvTierTest, WhatTheRequestsTookBackComesFromTheHost) {
  auto tier = this->tier(options());
  load_all(*tier);
  EXPECT_GE(tier->reclaim(1000), kPassages * kPages);
  const Pages back = load_all(*tier);
  EXPECT_EQ(tier->stats().ram_hits, static_cast<uint64_t>(kPassages));
  EXPECT_EQ(tier->stats().encoded, static_cast<uint64_t>(kPassages));
  auto without = this->tier(options(/*ram=*/false));
  expect_same(back, load_all(*without));
}

TEST_F(KvTierTest, TheHostsTierKeepsItsCap) {
  const size_t block_bytes = runner_->kv_shape().block_bytes();
  ram_ = store::PagePool::create(runner_->kv_shape(), 3 * kPages * block_bytes).value();
  auto tier = this->tier(options());
  tier->set_cap(0);
  load_all(*tier);
  EXPECT_EQ(tier->stats().ram_bytes, 3 * kPages * block_bytes);
  load(*tier, 0, 3);  // what came later found it full of what was being read
  EXPECT_EQ(tier->stats().ram_hits, 3u);
  load(*tier, kPassages - 1, 1);  // takes the place of the oldest
  EXPECT_EQ(tier->stats().ram_hits, 3u);
  EXPECT_EQ(tier->stats().disk_hits, 1u);
  EXPECT_FALSE(tier->holds(ids_[0]));
  tier->drop(ids_[1]);
  EXPECT_EQ(tier->stats().ram_bytes, 2 * kPages * block_bytes);
  tier->clear();
  EXPECT_EQ(tier->stats().ram_bytes, 0u);
  EXPECT_FALSE(tier->holds(ids_[2]));
}

// Memory of which only so many bytes can be made ready.
class ScarceMemory final : public kernels::PageMemory {
 public:
  explicit ScarceMemory(size_t ready_bytes) : ready_bytes_(ready_bytes) {}
  Result<std::byte*> reserve(size_t bytes) override {
    RH_TRY(region_, host_->reserve(bytes));
    return region_;
  }
  bool host_addressable() const override { return true; }
  uint64_t suggested_bytes() const override { return host_->suggested_bytes(); }
  Status copy_in(std::byte* to, std::span<const std::byte> from) override { return host_->copy_in(to, from); }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    return host_->copy_out(from, to);
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    return host_->copy_within(from, to, bytes);
  }
  Status prepare(std::span<const std::byte> part) override {
    const auto end = static_cast<size_t>(part.data() + part.size() - region_);
    if (end <= ready_bytes_) return {};
    return make_error(ErrorKind::kNoSpace, "{} bytes and no more", ready_bytes_);
  }

 private:
  size_t ready_bytes_;
  std::byte* region_ = nullptr;
  std::unique_ptr<kernels::PageMemory> host_ = kernels::host_page_memory();
};

TEST_F(KvTierTest, WhereTheHostGivesNoMoreTheTierEndsAndItsOldestStillMakeRoom) {
  const size_t block_bytes = runner_->kv_shape().block_bytes();
  const size_t ready_bytes = 3 * kPages * block_bytes;
  ram_ = store::PagePool::create(runner_->kv_shape(), 40 * kPages * block_bytes, 0,
                                 std::make_unique<ScarceMemory>(ready_bytes))
             .value();
  auto tier = this->tier(options());
  tier->set_cap(0);
  load_all(*tier);
  EXPECT_EQ(tier->stats().ram_bytes, ready_bytes);
  for (const int i : {kPassages - 1, kPassages - 2}) {
    load(*tier, i, 1);
    EXPECT_TRUE(tier->holds(ids_[static_cast<size_t>(i)])) << i;
    EXPECT_EQ(tier->stats().ram_bytes, ready_bytes);
  }
  EXPECT_FALSE(tier->holds(ids_[0]));
  EXPECT_FALSE(tier->holds(ids_[1]));
  load(*tier, kPassages - 2, 2);
  EXPECT_EQ(tier->stats().ram_hits, 2u);
}

TEST_F(KvTierTest, WhatComesFromTheHostMayBeOnItsWay) {
  auto tier = tier_with_late_pages();
  const uint64_t encoded = tier->stats().encoded;
  recall::LoadedKv loaded = begin_all(*tier);
  EXPECT_EQ(late_.on_the_way, 1) << "all of them together";
  for (const auto& passage : loaded.pages) {
    for (const store::PagePin& page : passage) EXPECT_EQ(page->arrival, late_.begun);
  }
  EXPECT_EQ(tier->stats().bytes, 0u) << "nobody else finds them before they are there";
  EXPECT_EQ(tier->reclaim(1000), 0);
  ASSERT_TRUE(loaded.finish().ok());
  ASSERT_TRUE(loaded.finish().ok());
  EXPECT_EQ(late_.on_the_way, 0);
  EXPECT_EQ(tier->stats().bytes, tier->stats().ram_bytes);
  EXPECT_EQ(tier->stats().encoded, encoded);
  const Pages again = load_all(*tier);
  EXPECT_EQ(late_.begun, 1u) << "they are in the pages now";
  expect_same(loaded.pages, again);
  auto without = this->tier(options(/*ram=*/false));
  expect_same(again, load_all(*without));
}

TEST_F(KvTierTest, WhatDidNotArriveIsNotRead) {
  auto tier = tier_with_late_pages();
  {
    recall::LoadedKv loaded = begin_all(*tier);
    late_.fails = true;
    for (int i = 0; i < 2; ++i) {
      const Status arrived = loaded.finish();
      ASSERT_FALSE(arrived.ok());
      EXPECT_EQ(arrived.error().message, "garbled on the way");
    }
  }
  EXPECT_EQ(tier->stats().bytes, 0u);
  late_.fails = false;
  begin_all(*tier) = {};  // given up on the way
  EXPECT_EQ(late_.on_the_way, 0);
  EXPECT_EQ(tier->stats().bytes, 0u);
  const Pages pages = load_all(*tier);
  EXPECT_EQ(late_.begun, 3u);
  auto without = this->tier(options(/*ram=*/false));
  expect_same(pages, load_all(*without));
}

TEST_F(KvTierTest, WhatIsDroppedOnItsWayDoesNotStay) {
  auto tier = tier_with_late_pages();
  recall::LoadedKv loaded = begin_all(*tier);
  tier->drop(ids_[3]);
  ASSERT_TRUE(loaded.finish().ok());
  EXPECT_FALSE(tier->holds(ids_[3]));
  EXPECT_TRUE(tier->holds(ids_[4]));
  EXPECT_EQ(tier->stats().bytes, tier->stats().ram_bytes);
}

// Both ways go on at once, and are measured, before anything is decided.
TEST_F(KvTierTest, LoadingAndMakingAreMeasuredAndWhatIsStoredIsNotStoredAgain) {
  load_all(*tier(options()));
  ASSERT_EQ(kept_, static_cast<size_t>(kPassages));
  auto tier = this->tier(options());
  const Pages pages = load_all(*tier);
  const recall::KvTierStats stats = tier->stats();
  EXPECT_GE(stats.outrun, 2u);
  EXPECT_EQ(stats.encoded, stats.outrun);
  EXPECT_EQ(stats.disk_hits, kPassages - stats.outrun);
  EXPECT_EQ(kept_, static_cast<size_t>(kPassages));
  auto without = this->tier(options(/*ram=*/false));
  expect_same(pages, load_all(*without));
  EXPECT_EQ(without->stats().outrun, 0u);
}

TEST_F(KvTierTest, WhatIsKnownToBeSlowerIsNotDone) {
  load_all(*tier(options()));
  const recall::StoredKv megabyte{1 << 20, 0, false};
  const recall::StoredKv cached_megabyte{1 << 20, 0, true};
  auto reading = this->tier(options());
  auto making = this->tier(options());
  for (const recall::StoredKv& passage : {megabyte, cached_megabyte}) {
    reading->rates().loaded(passage, 0, 1'000);
    making->rates().loaded(passage, 0, 10'000'000'000'000);
  }
  for (int i = 0; i < 2; ++i) {  // the first does not count
    reading->rates().made(1000, 1e4);
    making->rates().made(1'000'000, 1e-3);
  }
  const Pages read = load_all(*reading);
  EXPECT_EQ(reading->stats().disk_hits, static_cast<uint64_t>(kPassages));
  EXPECT_EQ(reading->stats().outrun, 0u);
  const Pages made = load_all(*making);
  EXPECT_EQ(making->stats().disk_hits, 0u);
  EXPECT_EQ(making->stats().outrun, static_cast<uint64_t>(kPassages));
  EXPECT_EQ(making->stats().encoded, static_cast<uint64_t>(kPassages));
  expect_same(read, made);
}

}  // namespace
}  // namespace rhapsode
