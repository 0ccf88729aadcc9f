// Random numbers that are the same everywhere for one seed (those of <random>'s distributions are not), and
// the times of Poisson arrivals made of them.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_LOADGEN_RANDOM_H_
#define MEMCGD_CLIENT_LOADGEN_RANDOM_H_

#include <cmath>
#include <cstdint>

namespace memcgd::client::loadgen {

// splitmix64 (Steele, Lea, Flood 2014): any seed is a good one.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // 0 … below − 1.  REQUIRES: 0 < below < 2^32.
  uint32_t Below(uint32_t below) { return static_cast<uint32_t>((Next() >> 32) * below >> 32); }
  // Above 0, at most 1.
  double Unit() { return static_cast<double>((Next() >> 11) + 1) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Arrivals that do not wait for one another: the gaps are exponential, so what came before says nothing about
// what comes next.
class PoissonArrivals {
 public:
  PoissonArrivals(double per_second, uint64_t seed) : mean_ns_(1e9 / per_second), random_(seed) {}

  // Nanoseconds after the start, of the next arrival.
  uint64_t NextNs() {
    time_ns_ -= std::log(random_.Unit()) * mean_ns_;
    return static_cast<uint64_t>(time_ns_);
  }

 private:
  const double mean_ns_;
  Random random_;
  double time_ns_ = 0;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_RANDOM_H_
