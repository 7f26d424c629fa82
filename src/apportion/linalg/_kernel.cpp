// The hot loops of apportion.linalg: per segment s (a user or a task with its observations)
//
//     A = base + sum_k w_k x_k x_k'        b = sum_k w_k y_k x_k        theta = A^-1 b
//
// and normal numbers from a ChaCha20 stream.  Plain C interface, loaded with ctypes; Python checks all arguments.
//
// How it is fast.  Rows x_k, scaled by sqrt(w_k), are gathered into a small panel that stays in cache, and A is
// updated tile by tile in registers, one triangle only.  A is kept as the upper triangle of a row-major matrix, so
// that the same tile also does the bulk of the Cholesky factorisation A = U'U.  A segment with fewer rows than
// columns is solved in its dual form, theta = X'(r I + X X')^-1 y, where the matrix is the smaller one.
// Everything below `KERNEL_LEVEL` is compiled once per instruction set (the file includes itself), and the best one
// that the processor has is chosen at run time.  Results do not depend on the number of threads.

#ifndef KERNEL_LEVEL

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace {

using Index = int64_t;

enum class Want { gram, moment, solution };

template <typename T>
struct Segments {  // the arguments of one call, shared by its threads
    Index n_segments;
    const int64_t* indptr;    // segment s owns observations indptr[s] .. indptr[s + 1]
    const int32_t* indices;   // observation k has features row indices[k]
    const T* features;
    Index dim;
    const T* weights;         // w_k, or null for ones
    const T* labels;          // y_k, or null where no moment is wanted
    bool signed_weights;      // some w_k < 0
    const T* base;            // dim x dim, or null for zero
    T ridge;                  // > 0 if base is ridge * I and the dual form may be used
    T* out;
};

constexpr Index kPieceLength = 32768;  // longer segments are cut, so that threads can share one
constexpr Index kMostPieces = 64;
constexpr Index kAhead = 16;           // observations between asking the memory for a row and its use

constexpr Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

template <typename T>
struct FreeAligned { void operator()(T* p) const { std::free(p); } };
template <typename T>
using Buffer = std::unique_ptr<T[], FreeAligned<T>>;

template <typename T>
Buffer<T> zeros(Index n) {
    size_t bytes = size_t(round_up(std::max<Index>(n, 1) * Index(sizeof(T)), 64));
    void* p = std::aligned_alloc(64, bytes);
    if (!p) throw std::bad_alloc();
    std::memset(p, 0, bytes);
    return Buffer<T>(static_cast<T*>(p));
}

// Runs body(thread) on `threads` threads; fewer if the system refuses to start more.
template <typename Body>
void in_parallel(int threads, const Body& body) {
    std::vector<std::thread> others;
    try {
        for (int t = 1; t < threads; ++t) others.emplace_back([&body, t] { body(t); });
    } catch (const std::system_error&) {
    }
    body(0);
    for (auto& other : others) other.join();
}

void keep_smallest(std::atomic<Index>& target, Index value) {
    Index seen = target.load();
    while ((seen < 0 || value < seen) && !target.compare_exchange_weak(seen, value)) {
    }
}

}  // namespace

// ---- one namespace per instruction set -----------------------------------------------------------------------

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

constexpr Index kOutOfMemory = -2;  // other results: -1 for success, else the first segment that failed

template <typename T>
Index segments_call(int level, int threads, Want want, const Segments<T>& task) {
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
        return AT_LEVEL(level, solve_packed(threads, n, dim, packed, rhs, base, out, failed));
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

}  // namespace

extern "C" {

int kernel_best_level() { return best_level(); }

#define SEGMENTS_FUNCTION(name, T)                                                                                 \
    Index name(int level, int threads, int want, Index n_segments, const int64_t* indptr, const int32_t* indices,  \
               const T* features, Index dim, const T* weights, const T* labels, int signed_weights, const T* base, \
               T ridge, T* out) {                                                                                  \
        return segments_call<T>(level, threads, Want(want),                                                        \
                                {n_segments, indptr, indices, features, dim, weights, labels, signed_weights != 0, \
                                 base, ridge, out});                                                               \
    }
SEGMENTS_FUNCTION(kernel_segments_float32, float)
SEGMENTS_FUNCTION(kernel_segments_float64, double)

#define PACKED_FUNCTION(name, T)                                                                                   \
    Index name(int level, int threads, Index n, Index dim, const T* packed, const T* rhs, const T* base, T* out,   \
               uint8_t* failed) {                                                                                  \
        return packed_call<T>(level, threads, n, dim, packed, rhs, base, out, failed);                             \
    }
PACKED_FUNCTION(kernel_solve_packed_float32, float)
PACKED_FUNCTION(kernel_solve_packed_float64, double)

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
    using Block = typename VectorOf<T, rows>::type;  // one row of a diagonal block
};

template <typename V, typename T>
INLINE V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

template <typename V, typename T>
INLINE void store(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

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

// Calls f(V{}, c) for vectors that cover columns begin .. end (multiples of `rows`), each as wide as alignment allows.
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
                if constexpr (Minus) sum[r][j] -= left[r] * x[j];
                else sum[r][j] += left[r] * x[j];
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

// Upper Cholesky factor U of a (a = U'U), in place; inverse_diagonal[r] = 1 / U[r][r].  False if not positive definite.
template <typename T>
bool factor(T* a, Index size, Index stride, T* inverse_diagonal) {
    using S = Shape<T>;
    constexpr int rows = S::rows;
    using B = typename S::Block;
    for (Index r0 = 0; r0 < size; r0 += rows) {
        T* block = a + r0 * stride;
        T* inverse = inverse_diagonal + r0;
        if (r0) tile_row<true>(a + r0, a, r0, stride, block, block, r0, size);
        B diagonal[rows];
        UNROLL for (int r = 0; r < rows; ++r) diagonal[r] = load<B>(block + r * stride + r0);
        bool positive = true;
        UNROLL for (int r = 0; r < rows; ++r) {
            const T pivot = diagonal[r][r], reciprocal = T(1) / pivot;
            positive &= pivot > 0;
            inverse[r] = std::sqrt(reciprocal);  // not waited for: the next pivot needs the reciprocal alone
            UNROLL for (int i = r + 1; i < rows; ++i) diagonal[i] -= (diagonal[r][i] * reciprocal) * diagonal[r];
        }
        if (!positive) return false;
        UNROLL for (int r = 0; r < rows; ++r) store(block + r * stride + r0, diagonal[r] * inverse[r]);
        for_vectors<T>(r0 + rows, size, [&](auto v, Index c) {
            using V = decltype(v);
            V x[rows];
            UNROLL for (int r = 0; r < rows; ++r) x[r] = load<V>(block + r * stride + c);
            UNROLL for (int r = 0; r < rows; ++r) {
                x[r] *= inverse[r];
                UNROLL for (int i = r + 1; i < rows; ++i) x[i] -= block[r * stride + r0 + i] * x[r];
                store(block + r * stride + c, x[r]);
            }
        });
    }
    return true;
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
            UNROLL for (int i = r + 1; i < rows; ++i) z[i] -= block[r * stride + r0 + i] * z[r];
        }
        UNROLL for (int r = 0; r < rows; ++r) x[r0 + r] = z[r];
        for_vectors<T>(r0 + rows, size, [&](auto v, Index c) {
            using V = decltype(v);
            V rest = load<V>(x + c);
            UNROLL for (int r = 0; r < rows; ++r) rest -= z[r] * load<V>(block + r * stride + c);
            store(x + c, rest);
        });
    }
    for (Index r0 = size - rows; r0 >= 0; r0 -= rows) {  // backwards: U x = z
        const T* block = u + r0 * stride;
        typename Shape<T>::Vector wide[rows] = {};
        typename Shape<T>::Block narrow[rows] = {};
        for_vectors<T>(r0 + rows, size, [&](auto v, Index c) {
            using V = decltype(v);
            V known = load<V>(x + c);
            UNROLL for (int r = 0; r < rows; ++r) {
                V product = load<V>(block + r * stride + c) * known;
                if constexpr (std::is_same_v<V, typename Shape<T>::Vector>) wide[r] += product;
                else narrow[r] += product;
            }
        });
        UNROLL for (int r = 0; r < rows; ++r) z[r] = x[r0 + r] - sum_lanes(wide[r]) - sum_lanes(narrow[r]);
        UNROLL for (int r = rows - 1; r >= 0; --r) {
            z[r] *= inverse_diagonal[r0 + r];
            UNROLL for (int i = 0; i < r; ++i) z[i] -= block[i * stride + r0 + r] * z[r];
        }
        UNROLL for (int r = 0; r < rows; ++r) x[r0 + r] = z[r];
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
            even += coefficients[k] * load<V>(panel + k * stride + c);
            odd += coefficients[k + 1] * load<V>(panel + (k + 1) * stride + c);
        }
        if (k < depth) even += coefficients[k] * load<V>(panel + k * stride + c);
        store(out + c, even + odd);
    });
}

template <typename T>
INLINE bool all_finite(const T* x, Index n) {
    T sum = 0;
    for (Index i = 0; i < n; ++i) sum += x[i] * T(0);
    return sum == T(0);
}

// One thread's working memory and the steps it takes.
template <Want want, typename T>
struct Worker {
    using S = Shape<T>;
    const Segments<T>& task;
    Index dim, size, stride, panel_rows, n_observations;
    Buffer<T> panel, left_panel, transposed, matrix, coefficients, vector, inverse_diagonal;
    const T* base;  // padded to size x stride, ones on the padding's diagonal

    Worker(const Segments<T>& task, const T* base)
        : task(task), dim(task.dim), size(round_up(dim, S::rows)), stride(round_up(size, S::lanes)),
          n_observations(task.indptr[task.n_segments]), base(base) {
        Index depth = std::clamp<Index>(24576 / Index(stride * sizeof(T)), 32, 256);
        panel_rows = round_up(std::max(depth, task.ridge > 0 ? stride : 0), S::lanes);
        panel = zeros<T>(panel_rows * stride);
        if (task.signed_weights) left_panel = zeros<T>(panel_rows * stride);
        if (task.ridge > 0) transposed = zeros<T>(stride * stride);
        panel_rows = std::min(panel_rows, depth);
        matrix = zeros<T>(stride * stride);
        coefficients = zeros<T>(std::max(panel_rows, stride) + S::lanes);
        vector = zeros<T>(stride);
        inverse_diagonal = zeros<T>(stride);
    }

    // panel[k] = sqrt|w| x, coefficients[k] = +-sqrt|w| y: their products are w x x' and w y x
    void gather(Index begin, Index count) {
        for (Index k = 0; k < count; ++k) {
            const Index observation = begin + k;
            ask_for(observation + kAhead);
            const T* row = task.features + Index(task.indices[observation]) * dim;
            T weight = task.weights ? task.weights[observation] : T(1);
            T scale = std::sqrt(std::fabs(weight));
            scaled_copy(row, scale, panel.get() + k * stride);
            T signed_scale = weight < 0 ? -scale : scale;
            if (task.signed_weights) scaled_copy(row, signed_scale, left_panel.get() + k * stride);
            if (want != Want::gram) coefficients[k] = signed_scale * task.labels[observation];
        }
    }

    // Asks for a row of features that is wanted soon.
    INLINE void ask_for(Index observation) const {
        const T* row = task.features + Index(task.indices[std::min(observation, n_observations - 1)]) * dim;
        for (Index c = 0; c < dim; c += 64 / Index(sizeof(T))) __builtin_prefetch(row + c);
    }

    INLINE void scaled_copy(const T* row, T scale, T* to) const {
        Index c = 0;
        for (; c + S::lanes <= dim; c += S::lanes) store(to + c, scale * load<typename S::Vector>(row + c));
        for (; c < dim; ++c) to[c] = scale * row[c];
    }

    // matrix and vector <- the sums over observations begin .. end, starting from `start`
    void accumulate(Index begin, Index end, const T* start) {
        std::fill_n(vector.get(), stride, T(0));
        Index blocks = std::max<Index>(1, (end - begin + panel_rows - 1) / panel_rows);
        for (Index block = 0; block < blocks; ++block) {
            Index from = begin + (end - begin) * block / blocks, to = begin + (end - begin) * (block + 1) / blocks;
            gather(from, to - from);
            const T* left = task.signed_weights ? left_panel.get() : panel.get();
            if (want != Want::moment)
                rank_update<want == Want::gram>(left, panel.get(), to - from, stride, size,
                                                block ? matrix.get() : start, matrix.get());
            if (want != Want::gram)
                weighted_sum(panel.get(), to - from, stride, size, coefficients.get(), vector.get());
        }
    }

    bool finish(Index segment) {
        if constexpr (want == Want::gram) {
            T* packed = task.out + segment * (dim * (dim + 1) / 2);
            for (Index r = 0; r < dim; packed += ++r) std::memcpy(packed, &matrix[r * stride], (r + 1) * sizeof(T));
            return true;
        }
        if constexpr (want == Want::solution) {
            if (!factor(matrix.get(), size, stride, inverse_diagonal.get())) return false;
            substitute(matrix.get(), size, stride, inverse_diagonal.get(), vector.get());
        }
        std::memcpy(task.out + segment * dim, vector.get(), dim * sizeof(T));
        return all_finite(vector.get(), dim);
    }

    bool dual_is_cheaper(Index length) const { return round_up(length, S::rows) * 6 <= dim * 5; }  // as measured

    // theta = X' (ridge I + X X')^-1 y for fewer observations than columns
    bool solve_dual(Index segment, Index begin, Index count) {
        gather(begin, count);
        const Index n = round_up(count, S::rows), across = round_up(count, S::lanes);
        transpose_panel(count, across);
        rank_update<false>(transposed.get(), transposed.get(), dim, across, n, (const T*)nullptr, matrix.get());
        for (Index r = 0; r < n; ++r) matrix[r * across + r] += task.ridge;
        std::fill_n(coefficients.get() + count, n - count, T(0));
        if (!factor(matrix.get(), n, across, inverse_diagonal.get())) return false;
        substitute(matrix.get(), n, across, inverse_diagonal.get(), coefficients.get());
        std::fill_n(vector.get(), stride, T(0));
        weighted_sum(panel.get(), count, stride, size, coefficients.get(), vector.get());
        std::memcpy(task.out + segment * dim, vector.get(), dim * sizeof(T));
        return all_finite(vector.get(), dim);
    }

    void transpose_panel(Index count, Index across) {
        for (Index k = 0; k < across; k += S::lanes)
            for (Index c = 0; c < dim; c += S::lanes) {
                typename S::Vector square[S::lanes];
                UNROLL for (int i = 0; i < S::lanes; ++i)
                    square[i] = k + i < count ? load<typename S::Vector>(&panel[(k + i) * stride + c]) : typename S::Vector{};
                transpose<T>(square);
                UNROLL for (int i = 0; i < S::lanes; ++i) store(&transposed[(c + i) * across + k], square[i]);
            }
    }
};

template <typename T>
Buffer<T> padded_base(const T* base, Index dim) {
    Index stride = round_up(dim, Shape<T>::lanes);
    Buffer<T> padded = zeros<T>(stride * stride);
    for (Index r = 0; r < stride; ++r) {
        if (r >= dim) padded[r * stride + r] = 1;
        else if (base) std::memcpy(&padded[r * stride], base + r * dim, dim * sizeof(T));
    }
    return padded;
}

// Cuts long segments into pieces, sums those first, then takes segments in turn.  The cuts depend on the data alone.
template <Want want, typename T>
Index run(const Segments<T>& task, int threads) {
    const Index total = task.indptr[task.n_segments];
    const Index piece_length = std::max(kPieceLength, total / kMostPieces);
    struct Piece { Index segment, begin, end; };
    std::vector<Piece> pieces;
    for (Index s = 0; s < task.n_segments; ++s) {
        Index begin = task.indptr[s], length = task.indptr[s + 1] - begin;
        Index n = length > 2 * piece_length ? (length + piece_length - 1) / piece_length : 0;
        for (Index i = 0; i < n; ++i) pieces.push_back({s, begin + length * i / n, begin + length * (i + 1) / n});
    }

    Buffer<T> base = padded_base(task.base, task.dim);
    std::vector<Worker<want, T>> workers;
    for (int t = 0; t < threads; ++t) workers.emplace_back(task, base.get());
    const Index stride = workers[0].stride, part = (want == Want::moment ? 0 : stride * stride) + stride;
    Buffer<T> parts = zeros<T>(part * Index(pieces.size()));

    std::atomic<Index> next{0};
    if (!pieces.empty())
        in_parallel(threads, [&](int thread) {
            Worker<want, T>& worker = workers[thread];
            for (Index i; (i = next++) < Index(pieces.size());) {
                worker.accumulate(pieces[i].begin, pieces[i].end, nullptr);
                T* to = parts.get() + i * part;
                std::copy_n(worker.vector.get(), stride, to);
                if (want != Want::moment) std::copy_n(worker.matrix.get(), stride * stride, to + stride);
            }
        });

    auto add_pieces = [&](Worker<want, T>& worker, Index segment) {
        std::fill_n(worker.vector.get(), stride, T(0));
        std::copy_n(base.get(), stride * stride, worker.matrix.get());
        for (size_t i = 0; i < pieces.size(); ++i)
            if (pieces[i].segment == segment) {
                const T* from = parts.get() + Index(i) * part;
                for (Index c = 0; c < stride; ++c) worker.vector[c] += from[c];
                if (want != Want::moment)
                    for (Index c = 0; c < stride * stride; ++c) worker.matrix[c] += from[stride + c];
            }
    };

    std::atomic<Index> failed{-1};
    next = 0;
    constexpr Index grain = 16;
    in_parallel(threads, [&](int thread) {
        Worker<want, T>& worker = workers[thread];
        for (Index first; (first = next.fetch_add(grain)) < task.n_segments;)
            for (Index s = first; s < std::min(first + grain, task.n_segments); ++s) {
                Index begin = task.indptr[s], length = task.indptr[s + 1] - begin;
                bool good;
                if (want == Want::solution && task.ridge > 0 && worker.dual_is_cheaper(length)) {
                    good = worker.solve_dual(s, begin, length);
                } else {
                    if (length > 2 * piece_length) add_pieces(worker, s);
                    else worker.accumulate(begin, begin + length, base.get());
                    good = worker.finish(s);
                }
                if (!good) keep_smallest(failed, s);
            }
    });
    return failed;
}

// (base + A_s)^-1 rhs_s for packed A_s; rows that cannot be solved become NaN and are marked.
template <typename T>
Index solve_packed(int threads, Index n, Index dim, const T* packed, const T* rhs, const T* base, T* out,
                   uint8_t* failed) {
    const Index size = round_up(dim, Shape<T>::rows), stride = round_up(size, Shape<T>::lanes);
    Buffer<T> padded = padded_base(base, dim);
    const Index each = stride * stride + 2 * stride;
    Buffer<T> scratch = zeros<T>(threads * each);
    std::atomic<Index> next{0};
    in_parallel(threads, [&](int thread) {
        T* matrix = scratch.get() + thread * each;
        T *vector = matrix + stride * stride, *inverse_diagonal = vector + stride;
        for (Index s; (s = next++) < n;) {
            std::copy_n(padded.get(), stride * stride, matrix);
            const T* a = packed + s * (dim * (dim + 1) / 2);
            for (Index r = 0; r < dim; ++r)
                for (Index c = 0; c <= r; ++c) matrix[c * stride + r] += *a++;
            std::fill_n(vector, stride, T(0));
            std::copy_n(rhs + s * dim, dim, vector);
            bool good = factor(matrix, size, stride, inverse_diagonal);
            if (good) substitute(matrix, size, stride, inverse_diagonal, vector);
            good = good && all_finite(vector, dim);
            if (!good) std::fill_n(vector, stride, T(NAN));
            std::copy_n(vector, dim, out + s * dim);
            failed[s] = !good;
        }
    });
    return -1;
}

#endif
