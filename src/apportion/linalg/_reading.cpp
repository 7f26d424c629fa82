// What reading a file needs: codes of texts, and the stable order of pairs of codes.  Plain C interface, loaded with
// ctypes.  Nothing here depends on the width of a vector or on the number of threads; texts.py and orders.py say the same
// in Python and NumPy.

#include <algorithm>
#include <string>

#include "_threads.hpp"

namespace {

// ---- codes of texts --------------------------------------------------------------------------------------------

constexpr Index kTextsAhead = 64;   // whose slots are asked for before the first of them is looked at
constexpr size_t kShortText = 16;  // bytes of a text that a slot holds itself

// Texts get codes 0, 1, ... in the order in which they are first seen.  Two are one if and only if their bytes are equal.
class Texts {
public:
    Texts() : slots_(1 << 12) {}

    // Fills codes; notes in firsts the positions of texts that were not seen before, and returns their number.
    template <typename Offset>
    Index find(Index n, const Offset* offsets, const char* bytes, int32_t* codes, int64_t* firsts) {
        Index n_new = 0;
        Seen seen[kTextsAhead];
        for (Index start = 0; start < n; start += kTextsAhead) {
            const Index end = std::min(start + kTextsAhead, n);
            for (Index k = start; k < end; ++k) {
                seen[k - start] = looked_at(bytes + offsets[k], size_t(offsets[k + 1] - offsets[k]));
                __builtin_prefetch(&slots_[seen[k - start].hash & (slots_.size() - 1)]);
            }
            for (Index k = start; k < end; ++k) {
                const int32_t known = int32_t(entries_.size());
                codes[k] = code_of(seen[k - start]);
                if (codes[k] == known) firsts[n_new++] = k;
            }
        }
        return n_new;
    }

private:
    struct Seen {
        const char* text;
        size_t length;
        uint64_t hash, words[2];  // of a short text the words and the length say all
    };
    struct Slot {
        uint64_t length = 0;
        uint64_t words[2] = {0, 0};
        int32_t code = -1;
    };
    struct Entry {
        uint64_t hash;
        size_t begin, length;  // in kept_
    };

    static uint64_t folded(uint64_t a, uint64_t b) {
        const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
        return uint64_t(product) ^ uint64_t(product >> 64);
    }

    template <typename Word>
    static uint64_t word_at(const char* text) {
        Word word;
        std::memcpy(&word, text, sizeof word);
        return word;
    }

    static Seen looked_at(const char* text, size_t length) {
        Seen seen{text, length, 0, {0, 0}};
        if (length >= 8) {
            seen.words[0] = word_at<uint64_t>(text);
            seen.words[1] = word_at<uint64_t>(text + length - 8);
        } else if (length >= 4) {
            seen.words[0] = word_at<uint32_t>(text);
            seen.words[1] = word_at<uint32_t>(text + length - 4);
        } else if (length > 0) {
            seen.words[0] = uint64_t(uint8_t(text[0])) << 16 | uint64_t(uint8_t(text[length / 2])) << 8 | uint8_t(text[length - 1]);
        }
        uint64_t hash = folded(seen.words[0] ^ 0x9E3779B97F4A7C15u, (seen.words[1] ^ 0xD1B54A32D192ED03u) + length);
        for (size_t at = 8; at + 8 < length; at += 8)
            hash = folded(hash ^ word_at<uint64_t>(text + at), 0x9E3779B97F4A7C15u) + at;
        seen.hash = folded(hash ^ length, 0xD1B54A32D192ED03u);
        return seen;
    }

    bool same(const Slot& slot, const Seen& seen) const {
        if (slot.words[0] != seen.words[0] || slot.words[1] != seen.words[1] || slot.length != seen.length) return false;
        const Entry* const entry = seen.length > kShortText ? &entries_[size_t(slot.code)] : nullptr;
        return !entry ||
               (entry->length == seen.length && std::memcmp(kept_.data() + entry->begin, seen.text, seen.length) == 0);
    }

    int32_t code_of(const Seen& seen) {
        size_t at = seen.hash & (slots_.size() - 1);
        while (slots_[at].code >= 0 && !same(slots_[at], seen)) at = (at + 1) & (slots_.size() - 1);
        if (slots_[at].code >= 0) return slots_[at].code;
        if (entries_.size() == size_t(INT32_MAX)) throw std::bad_alloc();
        const int32_t code = int32_t(entries_.size());
        if (2 * (entries_.size() + 1) > slots_.size()) {
            grow();
            at = free_slot(seen.hash);
        }
        const size_t begin = kept_.size();
        if (seen.length > kShortText) kept_.append(seen.text, seen.length);
        entries_.push_back({seen.hash, begin, seen.length});
        slots_[at] = {seen.length, {seen.words[0], seen.words[1]}, code};
        return code;
    }

    size_t free_slot(uint64_t hash) const {
        size_t at = hash & (slots_.size() - 1);
        while (slots_[at].code >= 0) at = (at + 1) & (slots_.size() - 1);
        return at;
    }

    void grow() {
        std::vector<Slot> before(2 * slots_.size());
        before.swap(slots_);
        for (const Slot& slot : before)
            if (slot.code >= 0) slots_[free_slot(entries_[size_t(slot.code)].hash)] = slot;
    }

    std::vector<Slot> slots_;  // a power of two of them, at most half of them taken
    std::vector<Entry> entries_;
    std::string kept_;  // the bytes of texts that are not short, one after the other
};

// ---- orders ----------------------------------------------------------------------------------------------------

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


// Copies values where the mask is 1.  Each thread counts its part first, so that all know where theirs go.
template <typename T>
void copy_chosen(int threads, Index n, const uint8_t* mask, const T* values, T* out) {
    constexpr Index part = 1 << 16;
    const Index parts = (n + part - 1) / part;
    std::vector<Index> places(parts + 1, 0);
    in_parallel(threads, parts, [&](int, Index i) {
        for (Index k = i * part; k < std::min((i + 1) * part, n); ++k) places[i + 1] += mask[k];
    });
    for (Index i = 0; i < parts; ++i) places[i + 1] += places[i];
    in_parallel(threads, parts, [&](int, Index i) {
        T* to = out + places[i];
        Index k = i * part;
        const Index end = std::min(k + part, n);
        for (; k + 8 <= end; k += 8) {
            uint64_t eight;
            std::memcpy(&eight, mask + k, 8);
            if (eight == 0x0101010101010101u) to = std::copy_n(values + k, 8, to);
            else if (eight) for (Index l = k; l < k + 8; ++l) if (mask[l]) *to++ = values[l];
        }
        for (; k < end; ++k) if (mask[k]) *to++ = values[k];
    });
}

// Copies what lies before, between and after positions that ascend.
void copy_between(int threads, Index n, int bytes, Index n_positions, const int64_t* positions, const char* values,
                  char* out) {
    constexpr Index part = 1 << 12;
    in_parallel(threads, n_positions / part + 1, [&](int, Index i) {
        for (Index k = i * part; k < std::min((i + 1) * part, n_positions + 1); ++k) {
            const Index from = k ? positions[k - 1] + 1 : 0, to = k < n_positions ? positions[k] : n;
            std::memcpy(out + (from - k) * bytes, values + from * bytes, (to - from) * bytes);
        }
    });
}

}  // namespace

extern "C" {

// out = the values, of some bytes each, that are not at the positions.
void reading_without(int threads, Index n, int bytes, Index n_positions, const int64_t* positions, const void* values,
                     void* out) {
    copy_between(threads, n, bytes, n_positions, positions, static_cast<const char*>(values), static_cast<char*>(out));
}

// out = the values, of 4 or 8 bytes each, where the mask is 1.
void reading_chosen(int threads, Index n, int bytes, const uint8_t* mask, const void* values, void* out) {
    if (bytes == 4) copy_chosen(threads, n, mask, static_cast<const uint32_t*>(values), static_cast<uint32_t*>(out));
    else copy_chosen(threads, n, mask, static_cast<const uint64_t*>(values), static_cast<uint64_t*>(out));
}

// An empty list of texts, or null without memory for it; reading_forget lets go of it.
void* reading_texts() {
    try {
        return new Texts;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void reading_forget(void* texts) { delete static_cast<Texts*>(texts); }

// Fills codes of n texts, which lie between offsets (of 64 bits if wide, else of 32) in bytes.  Returns how many are new
// and fills firsts with their positions.
Index reading_codes(void* texts, Index n, int wide, const void* offsets, const char* bytes, int32_t* codes,
                    int64_t* firsts) {
    Texts& known = *static_cast<Texts*>(texts);
    try {
        return wide ? known.find(n, static_cast<const int64_t*>(offsets), bytes, codes, firsts)
                    : known.find(n, static_cast<const int32_t*>(offsets), bytes, codes, firsts);
    } catch (const std::exception&) {
        return kOutOfMemory;
    }
}

// Fills order with positions sorted by code, then by second code (null for none), then by position.  Returns 0 if a code
// is out of range.
Index reading_order(int threads, Index n, Index n_codes, const int32_t* codes, const int32_t* seconds, int64_t* order) {
    try {
        const Buffer<int64_t> starts = zeros<int64_t>(n_codes + 1);
        if (!count_codes(threads, n, n_codes, codes, starts.get())) return 0;
        fill_runs(threads, n, n_codes, codes, seconds, starts.get(), order);
        if (seconds) sort_runs(threads, n_codes, starts.get(), order);
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

}  // extern "C"
