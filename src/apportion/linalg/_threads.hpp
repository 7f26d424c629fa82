// Work shared by threads, for all compiled kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using Index = int64_t;

constexpr Index kSuccess = -1, kOutOfMemory = -2;  // other results name the first segment or user that failed

constexpr Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

inline int64_t wrapped_sum(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }

struct FreeAligned {
    void operator()(void* p) const { std::free(p); }
};
template <typename T>
using Buffer = std::unique_ptr<T[], FreeAligned>;

template <typename T>
Buffer<T> zeros(Index n) {
    const size_t bytes = size_t(round_up((n > 1 ? n : 1) * Index(sizeof(T)), 64));
    void* p = std::aligned_alloc(64, bytes);
    if (!p) throw std::bad_alloc();
    std::memset(p, 0, bytes);
    return Buffer<T>(static_cast<T*>(p));
}

// Calls body(thread, i) for all i < n, each thread taking the next i, on as many threads as the system grants.
template <typename Body>
void in_parallel(int threads, Index n, const Body& body) {
    std::atomic<Index> next{0};
    auto work = [&](int thread) {
        for (Index i; (i = next++) < n;) body(thread, i);
    };
    std::vector<std::thread> others;
    try {
        for (int t = 1; t < threads && t < n; ++t) others.emplace_back(work, t);
    } catch (const std::system_error&) {
    }
    work(0);
    for (std::thread& other : others) other.join();
}

inline void keep_smallest(std::atomic<Index>& target, Index value) {
    Index seen = target.load();
    while ((seen < 0 || value < seen) && !target.compare_exchange_weak(seen, value)) {
    }
}

}  // namespace
