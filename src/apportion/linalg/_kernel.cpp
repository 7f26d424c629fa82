// The hot loops of apportion.linalg: per segment s (a user or a task with its observations)
//
//     A = base + sum_k w_k x_k x_k'        b = base_rhs + sum_k w_k y_k x_k        theta = A^-1 b
//
// and normal numbers from a ChaCha20 stream.  Plain C interface, loaded with ctypes; Python checks all arguments.
//
// How it is fast.  Rows x_k, scaled by sqrt(w_k), are gathered into a small panel that stays in cache, and A is
// updated tile by tile in registers, one triangle only.  A is kept as the upper triangle of a row-major matrix, so
// that the same tile also does the bulk of the Cholesky factorisation A = U'U.  A segment with fewer rows than
// columns is solved in its dual form (see solve_dual), where the matrix is the smaller one.
// Everything below `KERNEL_LEVEL` is compiled once per instruction set (the file includes itself), and the best one
// that the processor has is chosen at run time.
//
// Results depend neither on the number of threads nor on the instruction set, to the last bit.  Products are added by
// fused operations, written out as such, on every set (by the C library where the processor has none); the compiler is
// told not to fuse any by itself.  Every number is a sum in an order that follows from the arguments alone: tiles and
// vectors of other sizes compute the same numbers, side by side.

#ifndef KERNEL_LEVEL

#include <algorithm>
#include <cmath>
#include <mutex>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "_threads.hpp"

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace {

enum class Want { gram, moment, solution };

template <typename T, typename F>
struct Segments {  // the arguments of one call, shared by its threads; features F may be narrower than the sums T
    Index n_segments;
    const int64_t* indptr;    // segment s owns observations indptr[s] .. indptr[s + 1]
    const int32_t* indices;   // observation k has features row indices[k]
    const F* features;
    Index n_rows;             // of features
    Index dim;
    const T* weights;         // w_k, or null for ones
    const T* labels;          // y_k, or null where no moment is wanted
    bool signed_weights;      // some w_k < 0
    const T* base;            // dim x dim, or null for zero
    const T* base_rhs;        // dim, or null for zero
    T ridge;                  // > 0 if base is ridge * I and the dual form may be used
    const T* back;            // dim x dim: a solution x is wanted as back' x; null for x itself
    T* out;
    T per_step = 0;           // > 0: factors are counted in steps of a lattice, this many to the unit (see run_lattice)
    int64_t* counts = nullptr;  // out, in whole steps
};

constexpr Index kPanelBytes = 49152;                // gathered rows that fit the inner caches
constexpr Index kPieceLength = 16384, kMostPieces = 16;  // of a long segment
constexpr Index kRangeBytes = Index(8) << 20;       // rows that fit the outer cache together with what else is there
constexpr Index kStep = 4;                          // rows that are eliminated together
constexpr Index kSums = 16;                         // a product of two vectors is so many sums of every 16th term
constexpr Index kAhead = 16;                        // observations between asking memory for a row and its use
constexpr Index kWholeRows = Index(1) << 18;        // rows whose products, up to 2^34 steps, add up to less than 2^53
constexpr int kBlocks = 16;                         // ChaCha20 blocks made at a time
constexpr Index kNormals = 8 * kBlocks;             // normal numbers made of them

// The arguments of rows that are held out; mirrored by apportion.linalg.held_out.
struct HeldOutArguments {
    Index n_users, most;
    const int64_t* indptr;
    const int32_t* tasks;
    const uint64_t* users;  // the hash of each user
    uint8_t* held;          // one per row
    uint64_t users_below, rows_below;
};

// Who does what.  A long segment is cut into pieces that threads can share; the others are handed out in turns of
// about equal work.  How a segment is cut depends on its own length alone: neither the number of threads nor any other
// segment alters a sum.  (A user's solution must not move when another user leaves.)
struct Plan {
    struct Piece { Index segment, begin, end; };
    std::vector<Piece> pieces;
    std::vector<Index> windows{0};  // pieces windows[i] .. windows[i + 1] are in memory together; whole segments
    std::vector<Index> turns{0};    // turn i covers segments turns[i] .. turns[i + 1]

    Plan(const int64_t* indptr, Index n_segments, Index dim) {
        const Index most_pieces = std::clamp<Index>((Index(1) << 24) / (dim * dim), kMostPieces, 512);  // bounds memory
        Index work = 0;
        for (Index s = 0; s < n_segments; ++s) {
            const Index begin = indptr[s], length = indptr[s + 1] - begin, n = n_pieces(length);
            if (n && Index(pieces.size()) - windows.back() + n > most_pieces && Index(pieces.size()) > windows.back())
                windows.push_back(pieces.size());
            for (Index i = 0; i < n; ++i) pieces.push_back({s, begin + length * i / n, begin + length * (i + 1) / n});
            work += length + dim / 2;
            if (work >= 4096 || s + 1 == n_segments) {
                turns.push_back(s + 1);
                work = 0;
            }
        }
        if (Index(pieces.size()) > windows.back()) windows.push_back(pieces.size());
    }
    static bool in_pieces(Index length) { return length > 2 * kPieceLength; }
    static Index n_pieces(Index length) {
        return in_pieces(length) ? std::min(kMostPieces, (length + kPieceLength - 1) / kPieceLength) : 0;
    }
};

// Numbers of a long vector in runs, one behind another: run r ends before ends[r], and its numbers are values[offsets[r]]
// to values[offsets[r + 1]].  All others are 0.
struct Runs {
    Index n;
    const int64_t *ends, *offsets;
    const double* values;

    Index starts(Index r) const { return ends[r] - (offsets[r + 1] - offsets[r]); }
};

}  // namespace

// ---- one namespace per instruction set -----------------------------------------------------------------------

#pragma GCC visibility push(hidden)
#define KERNEL_LEVEL
#define KERNEL_VECTOR_BYTES 16
#define KERNEL_ROWS 4
#define KERNEL_WIDE 2
namespace baseline {
#include "_kernel.cpp"
}
#undef KERNEL_VECTOR_BYTES
#undef KERNEL_ROWS
#undef KERNEL_WIDE

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERNEL_X86
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define KERNEL_VECTOR_BYTES 32
#define KERNEL_ROWS 4
#define KERNEL_WIDE 3
namespace avx2 {
#include "_kernel.cpp"
}
#undef KERNEL_VECTOR_BYTES
#undef KERNEL_ROWS
#undef KERNEL_WIDE
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#define KERNEL_VECTOR_BYTES 64
#define KERNEL_ROWS 8
#define KERNEL_WIDE 3
namespace avx512 {
#include "_kernel.cpp"
}
#pragma GCC pop_options
#endif

#pragma GCC visibility pop

// ---- the C interface -----------------------------------------------------------------------------------------

namespace {

int best_level() {
#ifdef KERNEL_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

#ifdef KERNEL_X86
#define AT_LEVEL(level, call) ((level) == 2 ? avx512::call : (level) == 1 ? avx2::call : baseline::call)
#else
#define AT_LEVEL(level, call) (baseline::call)
#endif

template <typename T, typename F>
Index segments_call(int level, int threads, Want want, const Segments<T, F>& task) {
    level = std::min(level, best_level());
    try {
        switch (want) {
            case Want::gram: return AT_LEVEL(level, template run<Want::gram>(task, threads));
            case Want::moment: return AT_LEVEL(level, template run<Want::moment>(task, threads));
            default: return AT_LEVEL(level, template run<Want::solution>(task, threads));
        }
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

template <typename T>
Index packed_call(int level, int threads, Index n, Index dim, const T* packed, const T* rhs, const T* base, T* out,
                  uint8_t* failed) {
    level = std::min(level, best_level());
    try {
        AT_LEVEL(level, solve_packed(threads, n, dim, packed, rhs, base, out, failed));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

template <typename F>
Index lattice_call(int level, int threads, Want want, const Segments<double, F>& task) {
    level = std::min(level, best_level());
    try {
        if (want == Want::gram) AT_LEVEL(level, template run_lattice<Want::gram>(task, threads));
        else AT_LEVEL(level, template run_lattice<Want::moment>(task, threads));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

template <typename T>
void normals_call(int level, int threads, const uint8_t* key, uint64_t counter, Index n, T* out) {
    level = std::min(level, best_level());
    uint32_t words[8];
    std::memcpy(words, key, 32);
    const Index batches = (n + kNormals - 1) / kNormals, share = 64;
    in_parallel(threads, (batches + share - 1) / share, [&](int, Index i) {
        AT_LEVEL(level, fill_normals(words, counter, i * share, std::min((i + 1) * share, batches), n, out));
    });
}

template <typename T>
void noisy_call(int level, int threads, const uint8_t* key, Index n, const Runs& runs, double scale, double step, T* out) {
    level = std::min(level, best_level());
    uint32_t words[8];
    std::memcpy(words, key, 32);
    const Index batches = (n + kNormals - 1) / kNormals, share = 64;
    in_parallel(threads, (batches + share - 1) / share, [&](int, Index i) {
        AT_LEVEL(level, add_normals(words, i * share, std::min((i + 1) * share, batches), n, runs, scale, step, out));
    });
}

}  // namespace

extern "C" {

int kernel_best_level() { return best_level(); }

#define SEGMENTS_FUNCTION(name, T, F)                                                                              \
    Index name(int level, int threads, int want, Index n_segments, const int64_t* indptr, const int32_t* indices,  \
               const F* features, Index n_rows, Index dim, const T* weights, const T* labels, int signed_weights,  \
               const T* base, const T* base_rhs, T ridge, const T* back, T* out) {                                 \
        return segments_call<T, F>(level, threads, Want(want),                                                     \
                                   {n_segments, indptr, indices, features, n_rows, dim, weights, labels,           \
                                    signed_weights != 0, base, base_rhs, ridge, back, out});                       \
    }
SEGMENTS_FUNCTION(kernel_segments_float32_of_float32, float, float)
SEGMENTS_FUNCTION(kernel_segments_float64_of_float64, double, double)
SEGMENTS_FUNCTION(kernel_segments_float64_of_float32, double, float)

#define LATTICE_FUNCTION(name, F)                                                                                  \
    Index name(int level, int threads, int want, Index n_segments, const int64_t* indptr, const int32_t* indices,  \
               const F* features, Index n_rows, Index dim, const double* weights, int signed_weights,              \
               double per_step, int64_t* counts) {                                                                 \
        return lattice_call<F>(level, threads, Want(want),                                                         \
                               {n_segments, indptr, indices, features, n_rows, dim, weights, weights,              \
                                signed_weights != 0, nullptr, nullptr, 0, nullptr, nullptr, per_step, counts});    \
    }
LATTICE_FUNCTION(kernel_lattice_of_float32, float)
LATTICE_FUNCTION(kernel_lattice_of_float64, double)

#define PACKED_FUNCTION(name, T)                                                                                   \
    Index name(int level, int threads, Index n, Index dim, const T* packed, const T* rhs, const T* base, T* out,   \
               uint8_t* failed) {                                                                                  \
        return packed_call<T>(level, threads, n, dim, packed, rhs, base, out, failed);                             \
    }
PACKED_FUNCTION(kernel_solve_packed_float32, float)
PACKED_FUNCTION(kernel_solve_packed_float64, double)

void kernel_normals_float32(int level, int threads, const uint8_t* key, uint64_t counter, Index n, float* out) {
    normals_call(level, threads, key, counter, n, out);
}
void kernel_normals_float64(int level, int threads, const uint8_t* key, uint64_t counter, Index n, double* out) {
    normals_call(level, threads, key, counter, n, out);
}

// out = values + scale * normal, rounded to a multiple of step, a power of two; values are 0 outside the runs, and without
// `ends` there is one run of all.
#define NOISY_FUNCTION(name, T)                                                                                    \
    void name(int level, int threads, const uint8_t* key, Index n, Index n_runs, const int64_t* ends,              \
              const int64_t* offsets, const double* values, double scale, double step, T* out) {                   \
        const int64_t all[] = {0, n};                                                                              \
        const Runs runs = ends ? Runs{n_runs, ends, offsets, values} : Runs{1, all + 1, all, values};              \
        noisy_call<T>(level, threads, key, n, runs, scale, step, out);                                             \
    }
NOISY_FUNCTION(kernel_add_normals_float32, float)
NOISY_FUNCTION(kernel_add_normals_float64, double)

// out = sums / 2^shift + scale * normal, rounded to whole numbers; doubtful where a boundary is too near to tell.
void kernel_rounded_normals(int level, int threads, const uint8_t* key, uint64_t counter, Index n, const int64_t* sums,
                            int shift, const double* scales, Index n_scales, int64_t* out, uint8_t* doubtful) {
    level = std::min(level, best_level());
    uint32_t words[8];
    std::memcpy(words, key, 32);
    const Index batches = (n + kNormals - 1) / kNormals, share = 64;
    in_parallel(threads, (batches + share - 1) / share, [&](int, Index i) {
        AT_LEVEL(level, add_rounded(words, counter, i * share, std::min((i + 1) * share, batches), n, sums, shift,
                                    scales, n_scales, out, doubtful));
    });
}

// words[i][b] = word i of ChaCha20 block counter + b, for 16 blocks: the published test vectors check this one.
void kernel_chacha20(int level, const uint8_t* key, uint64_t counter, uint64_t nonce, uint32_t (*words)[kBlocks]) {
    uint32_t key_words[8];
    std::memcpy(key_words, key, 32);
    AT_LEVEL(std::min(level, best_level()), template chacha20<1>(key_words, counter, nonce, (uint32_t(*)[16][kBlocks])words));
}

// out[k] = the first 64 bits of the ChaCha20 block at points[k], a counter and a nonce.
void kernel_keyed_words(int level, int threads, const uint8_t* key, Index n, const uint64_t* points, uint64_t* out) {
    level = std::min(level, best_level());
    uint32_t words[8];
    std::memcpy(words, key, 32);
    const Index batches = (n + kBlocks - 1) / kBlocks, share = 1024;
    in_parallel(threads, (batches + share - 1) / share, [&](int, Index i) {
        AT_LEVEL(level, fill_keyed(words, i * share, std::min((i + 1) * share, batches), n, points, out));
    });
}

// Marks the rows that users hold out, in an array of zeros.
Index kernel_held_out(int level, int threads, const uint8_t* key, const HeldOutArguments* task) {
    level = std::min(level, best_level());
    uint32_t words[8];
    std::memcpy(words, key, 32);
    const Index share = 1024;
    std::atomic<Index> result{kSuccess};
    in_parallel(threads, (task->n_users + share - 1) / share, [&](int, Index i) {
        try {
            AT_LEVEL(level, hold_out(words, *task, i * share, std::min((i + 1) * share, task->n_users)));
        } catch (const std::bad_alloc&) {
            result = kOutOfMemory;
        }
    });
    return result;
}

// setuptools expects this name; the library is meant for ctypes and refuses to be imported.
extern void* PyExc_ImportError;
void PyErr_SetString(void*, const char*);
void* PyInit__kernel() {
    PyErr_SetString(PyExc_ImportError, "apportion.linalg._kernel is loaded by apportion.linalg.kernel, not imported");
    return nullptr;
}

}  // extern "C"

#else  // ---- compiled once per instruction set: vectors of KERNEL_VECTOR_BYTES, tiles of KERNEL_ROWS rows --------

template <typename T, int N>
struct VectorOf { typedef T type __attribute__((vector_size(N * sizeof(T)))); };

template <typename T>
struct Shape {
    static constexpr int lanes = KERNEL_VECTOR_BYTES / sizeof(T);
    static constexpr int rows = KERNEL_ROWS;
    static constexpr int wide = KERNEL_WIDE;  // vectors per tile: rows * wide accumulators fit the registers
    using Vector = typename VectorOf<T, lanes>::type;
    using Block = typename VectorOf<T, rows>::type;  // as wide as a tile is high
    using Step = typename VectorOf<T, kStep>::type;  // one row of a diagonal block
};

template <typename V, typename T>
INLINE V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

template <typename V, typename T>
INLINE void store(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

// a * b + c and c - a * b, rounded once
INLINE float fused(float a, float b, float c) { return std::fma(a, b, c); }
INLINE double fused(double a, double b, double c) { return std::fma(a, b, c); }

template <typename V, typename T = std::decay_t<decltype(V{}[0])>>
INLINE V fused(V a, V b, V c) {
#if KERNEL_VECTOR_BYTES >= 32
    if constexpr (std::is_same_v<T, float>) {
        if constexpr (sizeof(V) == 16) return (V)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
        if constexpr (sizeof(V) == 32) return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    } else {
        if constexpr (sizeof(V) == 32) return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
    }
#if KERNEL_VECTOR_BYTES == 64
    if constexpr (std::is_same_v<T, float>) {
        if constexpr (sizeof(V) == 64) return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    } else {
        if constexpr (sizeof(V) == 64) return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
    }
#endif
#endif
    for (int i = 0; i < int(sizeof(V) / sizeof(T)); ++i) c[i] = std::fma(T(a[i]), T(b[i]), T(c[i]));
    return c;
}

template <typename V, typename T = std::decay_t<decltype(V{}[0])>>
INLINE V fused(T a, V b, V c) { return fused(a - V{}, b, c); }

template <typename T, typename V>
INLINE V fused_minus(T a, V b, V c) { return fused(-a, b, c); }

template <typename V>
INLINE auto sum_lanes(V v) {
    constexpr int n = sizeof(V) / sizeof(v[0]);
    if constexpr (n == 1) {
        return v[0];
    } else {
        typename VectorOf<std::decay_t<decltype(v[0])>, n / 2>::type low, high;
        __builtin_memcpy(&low, &v, sizeof low);
        __builtin_memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
        return sum_lanes(low + high);
    }
}

// Transposes a square of lanes x lanes numbers: interleaving row i with row i + lanes/2, log2(lanes) times.
template <typename T>
INLINE void transpose(typename Shape<T>::Vector* square) {
    constexpr int n = Shape<T>::lanes;
    using V = typename Shape<T>::Vector;
    using Order = typename VectorOf<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>, n>::type;
    Order low, high;
    for (int i = 0; i < n; ++i) {
        low[i] = i / 2 + (i % 2) * n;
        high[i] = low[i] + n / 2;
    }
    UNROLL for (int step = 1; step < n; step *= 2) {
        V mixed[n];
        UNROLL for (int i = 0; i < n / 2; ++i) {
            mixed[2 * i] = __builtin_shuffle(square[i], square[i + n / 2], low);
            mixed[2 * i + 1] = __builtin_shuffle(square[i], square[i + n / 2], high);
        }
        UNROLL for (int i = 0; i < n; ++i) square[i] = mixed[i];
    }
}

// Calls f(V{}, c) for vectors that cover columns begin .. end (multiples of `rows`), as wide as alignment allows.
template <typename T, typename F>
INLINE void for_vectors(Index begin, Index end, const F& f) {
    using S = Shape<T>;
    Index c = begin;
    if (S::rows < S::lanes && c < end && c % S::lanes) { f(typename S::Block{}, c); c += S::rows; }
    for (; c + S::lanes <= end; c += S::lanes) f(typename S::Vector{}, c);
    if (S::rows < S::lanes && c < end) f(typename S::Block{}, c);
}

// The heart: out[r][c] = in[r][c] +- sum_k left[k][r] right[k][c] for `rows` rows and N vectors of columns.
template <typename V, int N, bool Minus, typename T>
INLINE void tile(const T* left, const T* right, Index depth, Index stride, const T* in, T* out) {
    constexpr int rows = Shape<T>::rows, lanes = sizeof(V) / sizeof(T);
    V sum[rows][N];
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int j = 0; j < N; ++j) sum[r][j] = in ? load<V>(in + r * stride + j * lanes) : V{};
    for (Index k = 0; k < depth; ++k, left += stride, right += stride) {
        V x[N];
        UNROLL for (int j = 0; j < N; ++j) x[j] = load<V>(right + j * lanes);
        UNROLL for (int r = 0; r < rows; ++r)
            UNROLL for (int j = 0; j < N; ++j)
                if constexpr (Minus) sum[r][j] = fused_minus(left[r], x[j], sum[r][j]);
                else sum[r][j] = fused(left[r], x[j], sum[r][j]);
    }
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int j = 0; j < N; ++j) store(out + r * stride + j * lanes, sum[r][j]);
}

// The same for columns begin .. end, multiples of `rows`.
template <bool Minus, typename T>
void tile_row(const T* left, const T* right, Index depth, Index stride, const T* in, T* out, Index begin, Index end) {
    using S = Shape<T>;
    using V = typename S::Vector;
    using B = typename S::Block;
    auto at = [in](Index c) { return in ? in + c : in; };
    Index c = begin;
    if (S::rows < S::lanes && c < end && c % S::lanes) {
        tile<B, 1, Minus>(left, right + c, depth, stride, at(c), out + c);
        c += S::rows;
    }
    while (c + S::lanes <= end) {
        Index vectors = (end - c) / S::lanes;
        if (S::wide >= 3 && vectors >= 3 && vectors != 4) {
            tile<V, 3, Minus>(left, right + c, depth, stride, at(c), out + c);
            c += 3 * S::lanes;
        } else if (vectors >= 2) {
            tile<V, 2, Minus>(left, right + c, depth, stride, at(c), out + c);
            c += 2 * S::lanes;
        } else {
            tile<V, 1, Minus>(left, right + c, depth, stride, at(c), out + c);
            c += S::lanes;
        }
    }
    if (S::rows < S::lanes && c < end) tile<B, 1, Minus>(left, right + c, depth, stride, at(c), out + c);
}

// out = in + left' right, upper (or lower) triangle of `size` columns, in tiles; `size` is a multiple of `rows`.
template <bool Lower, typename T>
void rank_update(const T* left, const T* right, Index depth, Index stride, Index size, const T* in, T* out) {
    for (Index r = 0; r < size; r += Shape<T>::rows)
        tile_row<false>(left + r, right, depth, stride, in ? in + r * stride : nullptr, out + r * stride,
                        Lower ? 0 : r, Lower ? r + Shape<T>::rows : size);
}

// Cholesky factor of a kStep x kStep block whose rows are vectors, and 1 / its diagonal; false if it has none
template <typename T>
INLINE bool factor_step(typename Shape<T>::Step* diagonal, T* inverse) {
    bool positive = true;
    UNROLL for (int r = 0; r < kStep; ++r) {
        const T pivot = diagonal[r][r], reciprocal = T(1) / pivot;
        positive &= pivot > 0;
        inverse[r] = std::sqrt(reciprocal);  // not waited for: the next pivot needs the reciprocal alone
        UNROLL for (int i = r + 1; i < kStep; ++i)
            diagonal[i] = fused_minus(T(diagonal[r][i] * reciprocal), diagonal[r], diagonal[i]);
    }
    UNROLL for (int r = 0; r < kStep; ++r) diagonal[r] *= inverse[r];
    return positive;
}

// The same for a block as high as a tile, kStep rows at a time, whatever the height of a tile is
template <typename T>
INLINE bool factor_block(T* block, Index stride, T* inverse) {
    using B = typename Shape<T>::Step;
    constexpr int steps = Shape<T>::rows / kStep;
    bool positive = true;
    B x[steps][Shape<T>::rows];  // x[s][r]: columns s * kStep .. of row r
    UNROLL for (int s = 0; s < steps; ++s)
        UNROLL for (int r = 0; r < (s + 1) * kStep; ++r) x[s][r] = load<B>(block + r * stride + s * kStep);
    UNROLL for (int s = 0; s < steps; ++s) {
        UNROLL for (int r = 0; r < s * kStep; ++r) {
            x[s][r] *= inverse[r];
            UNROLL for (int i = r + 1; i < (s + 1) * kStep; ++i)
                x[s][i] = fused_minus(T(x[i / kStep][r][i % kStep]), x[s][r], x[s][i]);
        }
        positive &= factor_step<T>(&x[s][s * kStep], inverse + s * kStep);
    }
    UNROLL for (int s = 0; s < steps; ++s)
        UNROLL for (int r = 0; r < (s + 1) * kStep; ++r) store(block + r * stride + s * kStep, x[s][r]);
    return positive;
}

// Upper Cholesky factor U of a (a = U'U), in place, and 1 / U[r][r].  False if a is not positive definite.
template <typename T>
bool factor(T* a, Index size, Index stride, T* inverse_diagonal) {
    constexpr int rows = Shape<T>::rows;
    for (Index r0 = 0; r0 < size; r0 += rows) {
        T* block = a + r0 * stride;
        T* inverse = inverse_diagonal + r0;
        if (r0) tile_row<true>(a + r0, a, r0, stride, block, block, r0, size);
        if (!factor_block(block + r0, stride, inverse)) return false;
        for_vectors<T>(r0 + rows, size, [&](auto v, Index c) {
            using V = decltype(v);
            V x[rows];
            UNROLL for (int r = 0; r < rows; ++r) x[r] = load<V>(block + r * stride + c);
            UNROLL for (int r = 0; r < rows; ++r) {
                x[r] *= inverse[r];
                UNROLL for (int i = r + 1; i < rows; ++i) x[i] = fused_minus(block[r * stride + r0 + i], x[r], x[i]);
                store(block + r * stride + c, x[r]);
            }
        });
    }
    return true;
}

// z[r] = from[r] - sum_c block[r][c] x[c] over columns begin .. end: kSums sums, of columns that far apart each
template <typename T>
INLINE void subtract_products(const T* block, Index stride, Index begin, Index end, const T* x, T* z, const T* from) {
    using V = typename Shape<T>::Vector;
    using Whole = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    using Lane = typename VectorOf<Whole, Shape<T>::lanes>::type;
    constexpr int lanes = Shape<T>::lanes, parts = kSums / lanes;
    V sum[kStep][parts] = {};
    Lane column;
    UNROLL for (int i = 0; i < lanes; ++i) column[i] = i;
    for (Index c = begin / kSums * kSums; c < end; c += kSums) {
        const bool whole = c >= begin && c + kSums <= end;
        UNROLL for (int p = 0; p < parts; ++p) {
            V known = load<V>(x + c + p * lanes);
            const Lane here = column + Whole(c + p * lanes), wanted = (here >= Whole(begin)) & (here < Whole(end));
            if (!whole) known = wanted ? known : V{};  // what else is there may be left over from another segment
            UNROLL for (int r = 0; r < kStep; ++r) {
                V factors = load<V>(block + r * stride + c + p * lanes);
                if (!whole) factors = wanted ? factors : V{};
                sum[r][p] = fused(factors, known, sum[r][p]);
            }
        }
    }
    UNROLL for (int r = 0; r < kStep; ++r) {
        typename VectorOf<T, kSums>::type all;
        UNROLL for (int p = 0; p < parts; ++p) store(reinterpret_cast<T*>(&all) + p * lanes, sum[r][p]);
        z[r] = from[r] - sum_lanes(all);
    }
}

// x <- (U'U)^-1 x, block by block; the numbers of one block stay in registers
template <typename T>
void substitute(const T* u, Index size, Index stride, const T* inverse_diagonal, T* x) {
    constexpr int rows = Shape<T>::rows;
    T z[rows];
    for (Index r0 = 0; r0 < size; r0 += rows) {  // forwards: U' z = x
        const T* block = u + r0 * stride;
        UNROLL for (int r = 0; r < rows; ++r) z[r] = x[r0 + r];
        UNROLL for (int r = 0; r < rows; ++r) {
            z[r] *= inverse_diagonal[r0 + r];
            UNROLL for (int i = r + 1; i < rows; ++i) z[i] = fused(-block[r * stride + r0 + i], z[r], z[i]);
        }
        UNROLL for (int r = 0; r < rows; ++r) x[r0 + r] = z[r];
        for_vectors<T>(r0 + rows, size, [&](auto v, Index c) {
            using V = decltype(v);
            V rest = load<V>(x + c);
            UNROLL for (int r = 0; r < rows; ++r) rest = fused_minus(z[r], load<V>(block + r * stride + c), rest);
            store(x + c, rest);
        });
    }
    for (Index r0 = size - kStep; r0 >= 0; r0 -= kStep) {  // backwards: U x = z
        const T* block = u + r0 * stride;
        subtract_products(block, stride, r0 + kStep, size, x, z, x + r0);
        UNROLL for (int r = kStep - 1; r >= 0; --r) {
            z[r] *= inverse_diagonal[r0 + r];
            UNROLL for (int i = 0; i < r; ++i) z[i] = fused(-block[i * stride + r0 + r], z[r], z[i]);
        }
        UNROLL for (int r = 0; r < kStep; ++r) x[r0 + r] = z[r];
    }
}

// out[c] = in[c] + sum_k coefficients[k] panel[k][c]
template <typename T>
void weighted_sum(const T* panel, Index depth, Index stride, Index size, const T* coefficients, T* out) {
    for_vectors<T>(0, size, [&](auto v, Index c) {
        using V = decltype(v);
        V even = load<V>(out + c), odd{};
        Index k = 0;
        for (; k + 1 < depth; k += 2) {
            even = fused(coefficients[k], load<V>(panel + k * stride + c), even);
            odd = fused(coefficients[k + 1], load<V>(panel + (k + 1) * stride + c), odd);
        }
        if (k < depth) even = fused(coefficients[k], load<V>(panel + k * stride + c), even);
        store(out + c, even + odd);
    });
}

template <typename T>
INLINE bool all_finite(const T* x, Index n, Index step = 1) {
    T zero = 0;
    for (Index i = 0; i < n; ++i) zero += x[i * step] * T(0);  // infinity times zero is NaN
    return zero == T(0);
}

// Columns are padded with zeros to whole tiles (`size`), rows to whole vectors and products of them (`stride`).
template <typename T>
struct Padding {
    Index dim, size, stride;
    explicit Padding(Index dim)
        : dim(dim), size(round_up(dim, Shape<T>::rows)), stride(round_up(size, kSums)) {}

    Buffer<T> padded(const T* base) const {  // ones on the padding's diagonal keep the matrix positive definite
        Buffer<T> to = zeros<T>(stride * stride);
        for (Index r = 0; r < dim; ++r)
            if (base) std::copy_n(base + r * dim, dim, &to[r * stride]);
        for (Index r = dim; r < stride; ++r) to[r * stride + r] = 1;
        return to;
    }
};

// One thread's working memory and the steps it takes.
template <Want want, typename T, typename F>
struct Worker {
    using S = Shape<T>;
    using V = typename S::Vector;
    using Narrow = typename VectorOf<F, S::lanes>::type;
    const Segments<T, F>& task;
    const Padding<T> pad;
    const Index dim = pad.dim, size = pad.size, stride = pad.stride;
    const Index depth = std::clamp<Index>(kPanelBytes / (round_up(dim, kSums) * Index(sizeof(T))), 32, 256);  // rows
    const Index most_rows = std::max(depth, stride);
    Buffer<T> panel = zeros<T>(want == Want::moment ? 0 : most_rows * stride);
    Buffer<T> left_panel = zeros<T>(task.signed_weights ? most_rows * stride : 0);
    Buffer<T> transposed = zeros<T>(task.ridge > 0 ? stride * stride : 0);
    Buffer<T> coefficients = zeros<T>(most_rows);
    Buffer<T> matrix = zeros<T>(want == Want::moment ? 0 : stride * stride);
    Buffer<T> vector = zeros<T>(stride);
    Buffer<T> inverse_diagonal = zeros<T>(stride);

    explicit Worker(const Segments<T, F>& task) : task(task), pad(task.dim) {}

    INLINE const F* row_of(Index observation) const { return task.features + Index(task.indices[observation]) * dim; }

    INLINE void prefetch(Index observation) const {
        const F* soon = row_of(std::min(observation, task.indptr[task.n_segments] - 1));
        for (Index c = 0; c < dim; c += 64 / Index(sizeof(F))) __builtin_prefetch(soon + c);
    }

    INLINE V widened(const F* from) const { return __builtin_convertvector(load<Narrow>(from), V); }

    // panel[k] = sqrt|w| x and coefficients[k] = +-sqrt|w| y: their products are w x x' and w y x
    void gather(Index begin, Index count) {
        for (Index k = 0; k < count; ++k) {
            const Index here = begin + k;
            prefetch(here + kAhead);
            const F* row = row_of(here);
            const T weight = task.weights ? task.weights[here] : T(1);
            const T scale = std::sqrt(std::fabs(weight)), signed_scale = weight < 0 ? -scale : scale;
            if (task.per_step > 0) {
                whole_copy(row, scale * task.per_step, &panel[k * stride]);
                if (task.signed_weights) whole_copy(row, signed_scale * task.per_step, &left_panel[k * stride]);
                continue;
            }
            scaled_copy(row, scale, &panel[k * stride]);
            if (task.signed_weights) scaled_copy(row, signed_scale, &left_panel[k * stride]);
            if (want != Want::gram) coefficients[k] = signed_scale * task.labels[here];
        }
    }

    INLINE void scaled_copy(const F* row, T scale, T* to) const {
        Index c = 0;
        for (; c + S::lanes <= dim; c += S::lanes) store(to + c, scale * widened(row + c));
        for (; c < dim; ++c) to[c] = scale * row[c];
    }

    // scale * x towards zero to whole numbers, which therefore are nowhere longer
    INLINE void whole_copy(const F* row, T scale, T* to) const {
        Index c = 0;
        for (; c + S::lanes <= dim; c += S::lanes) store(to + c, whole(scale * widened(row + c)));
        for (; c < dim; ++c) to[c] = std::trunc(scale * T(row[c]));
    }

    // The whole part of numbers below 2^51
    static INLINE V whole(V x) {
#if KERNEL_VECTOR_BYTES == 64
        constexpr int cut = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
        if constexpr (sizeof(T) == 8) return (V)_mm512_maskz_roundscale_pd(0xff, (__m512d)x, cut);
        else return (V)_mm512_maskz_roundscale_ps(0xffff, (__m512)x, cut);
#elif KERNEL_VECTOR_BYTES == 32
        constexpr int cut = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
        if constexpr (sizeof(T) == 8) return (V)_mm256_round_pd((__m256d)x, cut);
        else return (V)_mm256_round_ps((__m256)x, cut);
#else
        for (int i = 0; i < S::lanes; ++i) x[i] = std::trunc(x[i]);
        return x;
#endif
    }

    // What whole observations begin .. end add to the counts of their segment, a run of rows at a time
    void count(Index begin, Index end, int64_t* to) {
        for (Index from = begin; from < end; from += kWholeRows) {
            const Index until = std::min(from + kWholeRows, end);
            if constexpr (want == Want::moment) {
                std::fill_n(vector.get(), stride, T(0));
                add_moment<true>(from, until);
                for (Index c = 0; c < dim; ++c) to[c] = wrapped_sum(to[c], int64_t(vector[c]));
            } else {
                accumulate(from, until, nullptr);
                int64_t* packed = to;
                for (Index r = 0; r < dim; packed += ++r)
                    for (Index c = 0; c <= r; ++c) packed[c] = wrapped_sum(packed[c], int64_t(matrix[r * stride + c]));
            }
        }
    }

    // vector gains sum y x over observations begin .. end: a few at a time, columns in registers.  With Whole, each
    // product is cut off to whole steps of the lattice.
    template <bool Whole = false>
    void add_moment(Index begin, Index end) {
        for (Index from = begin; from < end; from += kAhead) {
            const Index to = std::min(from + kAhead, end);
            for (Index k = from; k < to; ++k) prefetch(k + kAhead);
            Index c = 0;
            for (; c + 8 * S::lanes <= dim; c += 8 * S::lanes) add_columns<8, Whole>(from, to, c);
            for (; c + S::lanes <= dim; c += S::lanes) add_columns<1, Whole>(from, to, c);
            for (; c < dim; ++c)
                for (Index k = from; k < to; ++k) {
                    const T x = row_of(k)[c];
                    if constexpr (Whole) vector[c] += std::trunc(task.labels[k] * task.per_step * x);
                    else vector[c] = fused(task.labels[k], x, vector[c]);
                }
        }
    }

    template <int N, bool Whole>
    INLINE void add_columns(Index from, Index to, Index c) {
        V sum[N];
        UNROLL for (int j = 0; j < N; ++j) sum[j] = load<V>(&vector[c + j * S::lanes]);
        for (Index k = from; k < to; ++k) {
            const F* row = row_of(k) + c;
            const T scale = Whole ? task.labels[k] * task.per_step : task.labels[k];
            UNROLL for (int j = 0; j < N; ++j) {
                const V x = widened(row + j * S::lanes);
                if constexpr (Whole) sum[j] += whole(scale * x);
                else sum[j] = fused(scale, x, sum[j]);
            }
        }
        UNROLL for (int j = 0; j < N; ++j) store(&vector[c + j * S::lanes], sum[j]);
    }

    // vector <- base_rhs * factor, and zeros after it, where a segment that is not a number would leave something
    void start_vector(T factor) {
        for (Index c = 0; c < dim; ++c) vector[c] = task.base_rhs ? task.base_rhs[c] * factor : T(0);
        std::fill_n(&vector[dim], stride - dim, T(0));
    }

    // matrix <- start + sum w x x' over observations begin .. end; vector gains sum w y x
    void accumulate(Index begin, Index end, const T* start) {
        if constexpr (want == Want::moment) return add_moment(begin, end);
        const Index length = end - begin, blocks = std::max<Index>(1, (length + depth - 1) / depth);
        for (Index block = 0; block < blocks; ++block) {
            const Index from = begin + length * block / blocks, count = begin + length * (block + 1) / blocks - from;
            gather(from, count);
            const T *right = panel.get(), *left = task.signed_weights ? left_panel.get() : right;
            rank_update<want == Want::gram>(left, right, count, stride, size, block ? matrix.get() : start,
                                            matrix.get());
            if (want != Want::gram)
                weighted_sum(panel.get(), count, stride, size, coefficients.get(), vector.get());
        }
    }

    // Turns matrix and vector into the wanted result; false if that is not a finite one.
    bool finish(Index segment) {
        if constexpr (want == Want::gram) {
            T* packed = task.out + segment * (dim * (dim + 1) / 2);
            for (Index r = 0; r < dim; packed += ++r) std::copy_n(&matrix[r * stride], r + 1, packed);
            return all_finite(matrix.get(), dim, stride + 1);  // a bad row of features shows on the diagonal
        }
        if constexpr (want == Want::solution) {
            if (!factor(matrix.get(), size, stride, inverse_diagonal.get())) return no_solution(segment);
            substitute(matrix.get(), size, stride, inverse_diagonal.get(), vector.get());
        }
        return deliver(segment);
    }

    // out <- vector, brought back from the coordinates it was solved in; false if it is not finite
    bool deliver(Index segment) {
        T* to = task.out + segment * dim;
        if (!task.back) {
            std::copy_n(vector.get(), dim, to);
        } else {
            std::fill_n(to, dim, T(0));
            for (Index r = 0; r < dim; ++r)
                for (Index c = 0; c < dim; ++c) to[c] = fused(vector[r], task.back[r * dim + c], to[c]);
        }
        return all_finite(to, dim);
    }

    bool no_solution(Index segment) {
        std::fill_n(task.out + segment * dim, dim, T(NAN));
        return false;
    }

    bool dual_is_cheaper(Index length) const { return round_up(length, 8) * 6 <= dim * 5; }  // as measured

    // With theta_0 = base_rhs / ridge:  theta = theta_0 + X' (ridge I + X X')^-1 (y - X theta_0)
    bool solve_dual(Index segment, Index begin, Index count) {
        gather(begin, count);
        const Padding<T> dual(count);
        transpose_panel(count, dual.stride);
        rank_update<false, T>(transposed.get(), transposed.get(), dim, dual.stride, dual.size, nullptr, matrix.get());
        for (Index r = 0; r < dual.size; ++r) matrix[r * dual.stride + r] += task.ridge;
        std::fill_n(&coefficients[count], dual.size - count, T(0));
        if (task.base_rhs) {
            start_vector(T(-1) / task.ridge);
            weighted_sum(transposed.get(), dim, dual.stride, dual.size, vector.get(), coefficients.get());
        }
        if (!factor(matrix.get(), dual.size, dual.stride, inverse_diagonal.get())) return no_solution(segment);
        substitute(matrix.get(), dual.size, dual.stride, inverse_diagonal.get(), coefficients.get());
        start_vector(T(1) / task.ridge);
        weighted_sum(panel.get(), count, stride, size, coefficients.get(), vector.get());
        return deliver(segment);
    }

    void transpose_panel(Index count, Index across) {
        for (Index k = 0; k < across; k += S::lanes)
            for (Index c = 0; c < dim; c += S::lanes) {
                V square[S::lanes];
                UNROLL for (int i = 0; i < S::lanes; ++i)
                    square[i] = k + i < count ? load<V>(&panel[(k + i) * stride + c]) : V{};
                transpose<T>(square);
                UNROLL for (int i = 0; i < S::lanes; ++i) store(&transposed[(c + i) * across + k], square[i]);
            }
    }
};

template <typename W>
using Workers = std::vector<std::unique_ptr<W>>;

// Rows that do not fit the cache are read a range at a time, so that all segments meet a range while it is there.  Calls
// add(thread, segment, begin, end) for the observations of each segment that lie in the range; segments list their rows
// in ascending order, and one that does not is met in the last range, slower.  Long segments are left to their pieces.
template <typename T, typename F, typename Add>
void by_ranges(const Segments<T, F>& task, int threads, const Plan& plan, const Add& add) {
    const Index range = std::max<Index>(1, kRangeBytes / (task.dim * Index(sizeof(F))));
    std::vector<Index> done(task.indptr, task.indptr + task.n_segments);
    for (Index stop = range; stop < task.n_rows + range; stop += range) {
        const bool last = stop >= task.n_rows;
        in_parallel(threads, plan.turns.size() - 1, [&](int thread, Index turn) {
            for (Index s = plan.turns[turn]; s < plan.turns[turn + 1]; ++s) {
                if (Plan::in_pieces(task.indptr[s + 1] - task.indptr[s])) continue;
                Index begin = done[s], end = last ? task.indptr[s + 1] : begin;
                while (end < task.indptr[s + 1] && task.indices[end] < stop) ++end;
                add(thread, s, begin, end);
                done[s] = end;
            }
        });
    }
}

template <typename T, typename F>
bool wants_ranges(const Segments<T, F>& task) { return task.n_rows * task.dim * Index(sizeof(F)) > 2 * kRangeBytes; }

template <typename T, typename F>
Index moments_by_ranges(const Segments<T, F>& task, int threads, const Plan& plan,
                        const Workers<Worker<Want::moment, T, F>>& workers) {
    const Index dim = task.dim;
    std::fill_n(task.out, task.n_segments * dim, T(0));
    std::atomic<Index> failed{kSuccess};
    by_ranges(task, threads, plan, [&](int thread, Index s, Index begin, Index end) {
        Worker<Want::moment, T, F>& worker = *workers[thread];
        std::copy_n(task.out + s * dim, dim, worker.vector.get());
        worker.add_moment(begin, end);
        if (!worker.finish(s)) keep_smallest(failed, s);
    });
    return failed;
}

// Takes the long segments first, in windows: their pieces, then what they add up to; then the others in turn.
template <Want want, typename T, typename F>
Index run(const Segments<T, F>& task, int threads) {
    const Plan plan(task.indptr, task.n_segments, task.dim);
    Workers<Worker<want, T, F>> workers;
    for (int t = 0; t < threads; ++t) workers.push_back(std::make_unique<Worker<want, T, F>>(task));
    std::atomic<Index> failed{kSuccess};
    const bool in_ranges = want == Want::moment && wants_ranges(task);
    if constexpr (want == Want::moment)
        if (in_ranges) failed = moments_by_ranges(task, threads, plan, workers);
    const Index stride = workers[0]->stride, matrix_size = want == Want::moment ? 0 : stride * stride;
    const Buffer<T> base = workers[0]->pad.padded(task.base);
    Index largest = 0;
    for (size_t w = 0; w + 1 < plan.windows.size(); ++w)
        largest = std::max(largest, plan.windows[w + 1] - plan.windows[w]);
    const Buffer<T> parts = zeros<T>(largest * (matrix_size + stride));

    for (size_t w = 0; w + 1 < plan.windows.size(); ++w) {
        const Index first = plan.windows[w], last = plan.windows[w + 1];
        auto part = [&](Index piece) { return parts.get() + (piece - first) * (matrix_size + stride); };
        in_parallel(threads, last - first, [&](int thread, Index i) {
            Worker<want, T, F>& worker = *workers[thread];
            std::fill_n(worker.vector.get(), stride, T(0));
            worker.accumulate(plan.pieces[first + i].begin, plan.pieces[first + i].end, nullptr);
            std::copy_n(worker.vector.get(), stride, part(first + i));
            std::copy_n(worker.matrix.get(), matrix_size, part(first + i) + stride);
        });
        in_parallel(threads, last - first, [&](int thread, Index i) {
            const Index segment = plan.pieces[first + i].segment;
            if (i && plan.pieces[first + i - 1].segment == segment) return;  // done with its first piece
            Worker<want, T, F>& worker = *workers[thread];
            worker.start_vector(1);
            std::copy_n(base.get(), matrix_size, worker.matrix.get());
            for (Index p = first + i; p < last && plan.pieces[p].segment == segment; ++p) {
                for (Index c = 0; c < stride; ++c) worker.vector[c] += part(p)[c];
                for (Index c = 0; c < matrix_size; ++c) worker.matrix[c] += part(p)[stride + c];
            }
            if (!worker.finish(segment)) keep_smallest(failed, segment);
        });
    }

    if (in_ranges) return failed;
    in_parallel(threads, plan.turns.size() - 1, [&](int thread, Index turn) {
        Worker<want, T, F>& worker = *workers[thread];
        for (Index s = plan.turns[turn]; s < plan.turns[turn + 1]; ++s) {
            const Index begin = task.indptr[s], end = task.indptr[s + 1];
            if (Plan::in_pieces(end - begin)) continue;
            bool good;
            if (want == Want::solution && task.ridge > 0 && worker.dual_is_cheaper(end - begin)) {
                good = worker.solve_dual(s, begin, end - begin);
            } else {
                worker.start_vector(1);
                worker.accumulate(begin, end, base.get());
                good = worker.finish(s);
            }
            if (!good) keep_smallest(failed, s);
        }
    });
    return failed;
}

// Sums on a lattice.  The factors sqrt|w| x of a Gram matrix, or the products y x of a moment, are counted in steps of
// the lattice, cut off towards zero.  Whatever they add up to is a whole number below 2^53 as long as it is held in a
// double, and is counted in 64 bits from there on: no addition rounds, so no order of them matters.
template <Want want, typename F>
void run_lattice(const Segments<double, F>& task, int threads) {
    const Plan plan(task.indptr, task.n_segments, task.dim);
    const Index width = want == Want::gram ? task.dim * (task.dim + 1) / 2 : task.dim;
    Workers<Worker<want, double, F>> workers;
    for (int t = 0; t < threads; ++t) workers.push_back(std::make_unique<Worker<want, double, F>>(task));
    std::fill_n(task.counts, task.n_segments * width, int64_t(0));
    std::mutex adding;
    in_parallel(threads, plan.pieces.size(), [&](int thread, Index i) {
        const Plan::Piece& piece = plan.pieces[i];
        std::vector<int64_t> part(width, 0);
        workers[thread]->count(piece.begin, piece.end, part.data());
        const std::lock_guard<std::mutex> held(adding);
        int64_t* to = task.counts + piece.segment * width;
        for (Index c = 0; c < width; ++c) to[c] = wrapped_sum(to[c], part[c]);
    });
    auto count = [&](int thread, Index s, Index begin, Index end) {
        workers[thread]->count(begin, end, task.counts + s * width);
    };
    if (want == Want::moment && wants_ranges(task)) return by_ranges(task, threads, plan, count);
    in_parallel(threads, plan.turns.size() - 1, [&](int thread, Index turn) {
        for (Index s = plan.turns[turn]; s < plan.turns[turn + 1]; ++s)
            if (!Plan::in_pieces(task.indptr[s + 1] - task.indptr[s]))
                count(thread, s, task.indptr[s], task.indptr[s + 1]);
    });
}

// (base + A_s)^-1 rhs_s for packed A_s; a segment that cannot be solved is marked and becomes NaN.
template <typename T>
void solve_packed(int threads, Index n, Index dim, const T* packed, const T* rhs, const T* base, T* out,
                  uint8_t* failed) {
    const Padding<T> pad(dim);
    const Index stride = pad.stride, each = stride * stride + 2 * stride;
    const Buffer<T> start = pad.padded(base), scratch = zeros<T>(threads * each);
    in_parallel(threads, n, [&](int thread, Index s) {
        T *matrix = scratch.get() + thread * each, *x = matrix + stride * stride, *inverse_diagonal = x + stride;
        std::copy_n(start.get(), stride * stride, matrix);
        const T* entry = packed + s * (dim * (dim + 1) / 2);
        for (Index r = 0; r < dim; ++r)
            for (Index c = 0; c <= r; ++c) matrix[c * stride + r] += *entry++;
        std::fill_n(x, stride, T(0));
        std::copy_n(rhs + s * dim, dim, x);
        bool good = factor(matrix, pad.size, stride, inverse_diagonal);
        if (good) substitute(matrix, pad.size, stride, inverse_diagonal, x);
        good = good && all_finite(x, dim);
        if (!good) std::fill_n(x, dim, T(NAN));
        std::copy_n(x, dim, out + s * dim);
        failed[s] = !good;
    });
}

#include "_normals.hpp"
#include "_held_out.hpp"

#endif
