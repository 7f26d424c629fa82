// The stable order of pairs of codes: counted by the first, then each run sorted by the second.  Included once: nothing
// here depends on the width of a vector.  orders.py says the same in NumPy.
#pragma once

#include <algorithm>

#include "_threads.hpp"

namespace {

constexpr Index kSortedAtOnce = 1 << 14;  // observations handed to a thread at a time
constexpr int kPositionBits = 32;         // the second code stands above the position in one word

// starts[c] is where code c begins, and starts[n_codes] == n; a code out of range is in nobody's share, so fewer are counted.
inline bool count_codes(int threads, Index n, Index n_codes, const int32_t* codes, int64_t* starts) {
    in_parallel(threads, threads, [&](int, Index share) {
        const Index low = n_codes * share / threads, high = n_codes * (share + 1) / threads;
        for (Index k = 0; k < n; ++k)
            if (codes[k] >= low && codes[k] < high) ++starts[codes[k] + 1];
    });
    for (Index c = 0; c < n_codes; ++c) starts[c + 1] += starts[c];
    return starts[n_codes] == n;
}

// Puts (second code, position) of each observation into the run of its first code, in the order of positions.
inline void fill_runs(int threads, Index n, Index n_codes, const int32_t* codes, const int32_t* seconds,
                      const int64_t* starts, int64_t* order) {
    const Buffer<int64_t> next = zeros<int64_t>(n_codes);
    std::copy(starts, starts + n_codes, next.get());
    in_parallel(threads, threads, [&](int, Index share) {
        const Index low = n_codes * share / threads, high = n_codes * (share + 1) / threads;
        for (Index k = 0; k < n; ++k)
            if (codes[k] >= low && codes[k] < high)
                order[next[codes[k]]++] = seconds ? int64_t(seconds[k]) << kPositionBits | k : k;
    });
}

// Sorts each run by the second code, equal ones by position, and leaves the positions.
inline void sort_runs(int threads, Index n_codes, const int64_t* starts, int64_t* order) {
    std::vector<Index> turns{0};
    for (Index c = 0; c < n_codes; ++c)
        if (starts[c + 1] - starts[turns.back()] >= kSortedAtOnce || c + 1 == n_codes) turns.push_back(c + 1);
    in_parallel(threads, Index(turns.size()) - 1, [&](int, Index turn) {
        for (Index c = turns[turn]; c < turns[turn + 1]; ++c) std::sort(order + starts[c], order + starts[c + 1]);
        for (Index k = starts[turns[turn]]; k < starts[turns[turn + 1]]; ++k)
            order[k] &= (int64_t(1) << kPositionBits) - 1;
    });
}

}  // namespace
