#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace mference {
namespace {

// Examples of the specification, D.6.
TEST(StopMatcher, HoldsBackWhatCouldBecomeAStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("hello E"), "hello ");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("D x"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, ReleasesAFalseStart) {
  StopMatcher matcher({"ABC"});
  EXPECT_EQ(matcher.Push("A"), "");
  EXPECT_EQ(matcher.Push("B"), "");
  EXPECT_EQ(matcher.Push("D"), "ABD");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, FindsOverlappingStarts) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aaab"), "a");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, TheEarliestOfSeveralStopsWins) {
  StopMatcher matcher({"world", "lo w", ""});
  EXPECT_EQ(matcher.Push("hello world"), "hel");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, FinishReleasesWhatNeverBecameAStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("the EN"), "the ");
  EXPECT_EQ(matcher.Finish(), "EN");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Push("anything"), "anything");
}

TEST(StopMatcher, EverySplitShowsTheSame) {
  const std::string text = "one two STOP three";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    StopMatcher matcher({"STOP", "TOOT"});
    std::string shown = matcher.Push(text.substr(0, cut));
    shown += matcher.Push(text.substr(cut));
    shown += matcher.Finish();
    EXPECT_EQ(shown, "one two ") << cut;
  }
}

}  // namespace
}  // namespace mference
