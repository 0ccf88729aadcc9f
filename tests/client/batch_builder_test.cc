// The bits of the words, what does not fit them, handles, positions and times.
#include "client/batch_builder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace memcgd::client {
namespace {

using memcgd::v1::Batch;
using memcgd::v1::FileRange;

constexpr EventPlace kPlace = {.cpu = 3, .tid = 4194303, .time_ns = 5'000'001'234};

struct Word {
  uint64_t kind, cpu, tid, time_us, body;
};

Word WordAt(const Batch& batch, int i) {
  const uint64_t head = batch.words(2 * i);
  return {head & 63, head >> 6 & 1023, head >> 16 & 0x3fffff, head >> 38, batch.words(2 * i + 1)};
}

TEST(BatchBuilderTest, AddressWordHoldsPlaceAddressAndErrorCode) {
  BatchBuilder builder;
  builder.AddAddress(kPlace, WordKind::kFault, kMaxWordAddress, 0x7f);
  const Batch batch = builder.Take(7);
  EXPECT_EQ(batch.sequence(), 7);
  ASSERT_EQ(batch.words_size(), 2);
  const Word word = WordAt(batch, 0);
  EXPECT_EQ(word.kind, 1);
  EXPECT_EQ(word.cpu, 3);
  EXPECT_EQ(word.tid, 4194303);
  EXPECT_EQ(word.body & kMaxWordAddress, kMaxWordAddress);
  EXPECT_EQ(word.body >> 57, 0x7f);
}

TEST(BatchBuilderTest, FileWordHoldsOrderOfFoliosAndPagesOfRanges) {
  BatchBuilder builder;
  const uint32_t file = builder.FileHandle(1, 2, false);
  builder.AddFile(kPlace, WordKind::kFileAdd, file, 0xffffffff, 512, 9);
  builder.AddFile(kPlace, WordKind::kFileRead, file, 5, 256, 0);
  builder.AddFile(kPlace, WordKind::kFileFault, file, 6, 1, 0);
  const Batch batch = builder.Take(1);
  ASSERT_EQ(batch.words_size(), 6);
  EXPECT_EQ(WordAt(batch, 0).body, file | uint64_t{0xffffffff} << 24 | uint64_t{9} << 56);
  EXPECT_EQ(WordAt(batch, 1).body, file | uint64_t{5} << 24 | uint64_t{255} << 56);
  EXPECT_EQ(WordAt(batch, 2).body, file | uint64_t{6} << 24);
}

TEST(BatchBuilderTest, FileEventThatDoesNotFitBecomesAFileRange) {
  BatchBuilder builder;
  const uint32_t file = builder.FileHandle(1, 2, false);
  builder.AddFile(kPlace, WordKind::kFileWrite, file, 5, 257, 0);
  builder.AddFile(kPlace, WordKind::kFileDelete, file, uint64_t{1} << 32, 4, 2);
  const Batch batch = builder.Take(1);
  EXPECT_EQ(batch.words_size(), 0);
  ASSERT_EQ(batch.side_size(), 3);
  const FileRange& write = batch.side(1).file_range();
  EXPECT_EQ(write.op(), FileRange::OP_WRITE);
  EXPECT_EQ(write.file(), file);
  EXPECT_EQ(write.index(), 5);
  EXPECT_EQ(write.count(), 257);
  const FileRange& deletion = batch.side(2).file_range();
  EXPECT_EQ(deletion.op(), FileRange::OP_DELETE);
  EXPECT_EQ(deletion.index(), uint64_t{1} << 32);
  EXPECT_EQ(deletion.count(), 4);
  EXPECT_EQ(deletion.order(), 2);
}

TEST(BatchBuilderTest, FileEventWithoutAHandleIsLeftOut) {
  BatchBuilder builder;
  builder.AddFile(kPlace, WordKind::kFileAdd, 0, 1, 1, 0);
  EXPECT_EQ(builder.size(), 0);
}

TEST(BatchBuilderTest, RangeWordHoldsPageNumberAndPages) {
  BatchBuilder builder;
  builder.AddRange(kPlace, WordKind::kMunmap, 0x7f0000001000, uint64_t{0x7ffff} << 12);
  const Batch batch = builder.Take(1);
  EXPECT_EQ(WordAt(batch, 0).body, 0x7f0000001 | uint64_t{0x7ffff} << 45);
}

TEST(BatchBuilderTest, RangeOfTwoGigabytesBecomesASideEvent) {
  BatchBuilder builder;
  const uint64_t length = uint64_t{0x80000} << 12;
  builder.AddRange(kPlace, WordKind::kMmapAnon, 0x1000, length);
  builder.AddRange(kPlace, WordKind::kMunmap, 0x2000, length);
  builder.AddRange(kPlace, WordKind::kDontNeed, 0x3000, length);
  const Batch batch = builder.Take(1);
  EXPECT_EQ(batch.words_size(), 0);
  ASSERT_EQ(batch.side_size(), 3);
  EXPECT_EQ(batch.side(0).mmap().address(), 0x1000);
  EXPECT_EQ(batch.side(0).mmap().length(), length);
  EXPECT_EQ(batch.side(0).mmap().prot(), 3);
  EXPECT_EQ(batch.side(0).mmap().flags(), 0x22);
  EXPECT_EQ(batch.side(1).munmap().address(), 0x2000);
  EXPECT_EQ(batch.side(2).madvise().advice(), 4);
}

TEST(BatchBuilderTest, HandlesAreDefinedOnceBeforeTheirFirstUse) {
  BatchBuilder builder;
  const uint32_t path = builder.PathHandle("/a");
  EXPECT_EQ(builder.PathHandle("/a"), path);
  EXPECT_NE(builder.PathHandle("/b"), path);
  const uint32_t name = builder.NameHandle("make");
  EXPECT_EQ(builder.NameHandle("make"), name);
  const Batch first = builder.Take(1);
  ASSERT_EQ(first.side_size(), 3);
  EXPECT_EQ(first.side(0).define_path().path(), "/a");
  EXPECT_EQ(first.side(0).define_path().handle(), path);
  EXPECT_EQ(first.side(2).define_name().name(), "make");
  EXPECT_EQ(builder.PathHandle("/a"), path);
  EXPECT_EQ(builder.Take(2).side_size(), 0) << "it was defined in the batch before";
}

TEST(BatchBuilderTest, FileThatTurnsOutToBeSharedMemoryGetsANewHandle) {
  BatchBuilder builder;
  const uint32_t shmem = builder.FileHandle(26, 11, true);
  EXPECT_EQ(builder.FileHandle(26, 11, true), shmem);
  const uint32_t regular = builder.FileHandle(26, 11, false);
  EXPECT_NE(regular, shmem);
  EXPECT_EQ(builder.FileHandle(26, 11, false), regular);
  const Batch batch = builder.Take(1);
  ASSERT_EQ(batch.side_size(), 2);
  EXPECT_TRUE(batch.side(0).define_file().shmem());
  EXPECT_FALSE(batch.side(1).define_file().shmem());
}

TEST(BatchBuilderTest, NamesAreCutToWhatTheProtocolAllows) {
  BatchBuilder builder;
  const uint32_t handle = builder.NameHandle(std::string(300, 'x'));
  EXPECT_EQ(builder.NameHandle(std::string(255, 'x')), handle);
  EXPECT_EQ(builder.Take(1).side(0).define_name().name().size(), 255);
}

TEST(BatchBuilderTest, SideEventsStandBetweenTheWords) {
  BatchBuilder builder;
  builder.AddSide(kPlace)->mutable_exit_mmap();
  builder.AddAddress(kPlace, WordKind::kFault, 0x1000, 0);
  builder.AddAddress(kPlace, WordKind::kFault, 0x2000, 0);
  builder.AddSide(kPlace)->mutable_exit_mmap();
  EXPECT_EQ(builder.size(), 4);
  const Batch batch = builder.Take(1);
  EXPECT_EQ(batch.side(0).position(), 0);
  EXPECT_EQ(batch.side(1).position(), 2);
  EXPECT_EQ(builder.size(), 0);
}

TEST(BatchBuilderTest, TimesCountFromTheFirstFrequentEvent) {
  BatchBuilder builder;
  // perf writes what existed before with time 0: the frequent events must not count from there.
  builder.AddSide({.cpu = 0, .tid = 1, .time_ns = 0})->mutable_exit_mmap();
  builder.AddAddress({.cpu = 0, .tid = 1, .time_ns = 5717'000'001'999}, WordKind::kFault, 0x1000, 0);
  builder.AddAddress({.cpu = 0, .tid = 1, .time_ns = 5717'000'003'000}, WordKind::kFault, 0x1000, 0);
  builder.AddSide({.cpu = 0, .tid = 1, .time_ns = 5717'000'000'500})->mutable_exit_mmap();
  const Batch batch = builder.Take(1);
  EXPECT_EQ(batch.base_time_ns(), 5717'000'001'000) << "whole microseconds";
  EXPECT_EQ(WordAt(batch, 0).time_us, 0);
  EXPECT_EQ(WordAt(batch, 1).time_us, 2);
  EXPECT_EQ(batch.base_time_ns() + batch.side(0).time_offset_ns(), 0);
  EXPECT_EQ(batch.base_time_ns() + batch.side(1).time_offset_ns(), 5717'000'000'500)
      << "exact, before the base";
}

TEST(BatchBuilderTest, TimeBeforeTheBaseIsTheBase) {
  BatchBuilder builder;
  builder.AddAddress({.cpu = 0, .tid = 1, .time_ns = 9'000'000}, WordKind::kFault, 0x1000, 0);
  builder.AddAddress({.cpu = 0, .tid = 1, .time_ns = 4'000'000}, WordKind::kFault, 0x1000, 0);
  const Batch batch = builder.Take(1);
  EXPECT_EQ(WordAt(batch, 1).time_us, 0);
}

TEST(BatchBuilderTest, BatchIsFullBeforeItsTimesDoNotFit) {
  BatchBuilder builder;
  const auto fault_at = [&builder](int64_t seconds) {
    builder.AddAddress({.cpu = 0, .tid = 1, .time_ns = seconds * 1'000'000'000}, WordKind::kFault, 0x1000, 0);
  };
  fault_at(1);
  fault_at(31);
  EXPECT_FALSE(builder.full());
  fault_at(61);
  EXPECT_TRUE(builder.full());
  fault_at(200);
  const Batch batch = builder.Take(1);
  EXPECT_EQ(WordAt(batch, 2).time_us, 60'000'000);
  EXPECT_EQ(WordAt(batch, 3).time_us, kMaxWordTimeUs) << "the largest that fits";
  EXPECT_FALSE(builder.full());
  fault_at(300);
  EXPECT_EQ(builder.Take(2).base_time_ns(), 300'000'000'000);
}

TEST(BatchBuilderTest, AMigrationNamesAPageOfAFileOrAnAddress) {
  BatchBuilder builder;
  const uint32_t file = builder.FileHandle(1, 2, false);
  builder.AddMigration(kPlace, "/to", file, uint64_t{1} << 40, 77);
  builder.AddMigration(kPlace, "/to", 0, 77, 0x7000);
  const memcgd::v1::Batch batch = builder.Take(1);
  ASSERT_EQ(batch.side_size(), 4) << "two definitions, two migrations";
  EXPECT_EQ(batch.side(1).define_path().path(), "/to");
  const memcgd::v1::MigrateFolio& of_file = batch.side(2).migrate_folio();
  EXPECT_EQ(of_file.path(), batch.side(1).define_path().handle());
  EXPECT_EQ(of_file.file(), file);
  EXPECT_EQ(of_file.index(), uint64_t{1} << 40);
  EXPECT_EQ(of_file.address(), 0u);
  const memcgd::v1::MigrateFolio& mapped = batch.side(3).migrate_folio();
  EXPECT_EQ(mapped.file(), 0u);
  EXPECT_EQ(mapped.index(), 0u);
  EXPECT_EQ(mapped.address(), 0x7000u);
  EXPECT_EQ(batch.side(3).tid(), kPlace.tid);
}

}  // namespace
}  // namespace memcgd::client
