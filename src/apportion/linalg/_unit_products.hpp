// Sums over a unit's positions t of b_t a_t', for rows a_t and b_t of float32: their squared lengths from products
// between positions, and their weighted sum over units.  Included once per instruction set.  Products of two float32
// numbers are exact in double, and every sum has one order of additions, whatever the width of a vector.

typedef float NarrowPart __attribute__((vector_size(KERNEL_VECTOR_BYTES / 2)));

// Eight floats as doubles; and the last few floats of a row, with zeros behind them
#if KERNEL_VECTOR_BYTES == 64  // in one operation: the compiler would convert vectors in halves
INLINE Lanes widened(const float* from) { return {{(Part)_mm512_cvtps_pd(_mm256_loadu_ps(from))}}; }

INLINE Lanes widened(const float* from, Index n) {
    return {{(Part)_mm512_cvtps_pd(_mm256_maskz_loadu_ps(__mmask8((1 << std::min(n, Index(kLanes))) - 1), from))}};
}
#else
INLINE Lanes widened(const float* from) {
    Lanes x;
    UNROLL for (int i = 0; i < Lanes::n_parts; ++i) {
        NarrowPart held;
        __builtin_memcpy(&held, from + i * kPart, sizeof held);
        x.part[i] = __builtin_convertvector(held, Part);
    }
    return x;
}

INLINE Lanes widened(const float* from, Index n) {
    float held[kLanes] = {};
    for (Index i = 0; i < kLanes && i < n; ++i) held[i] = from[i];
    return widened(held);
}
#endif

// gram[(i + p) * n + j + q] = x_{i + p} . x_{j + q} for p and q in [0, kSide), as far as there are rows.  On the diagonal
// i and j are the same, and so are the products on both sides of it.
template <int kSide, bool kDiagonal>
inline void gram_tile(const float* rows, Index n, Index width, Index i, Index j, double* gram) {
    const float *left[kSide], *right[kSide];
    for (int p = 0; p < kSide; ++p) {
        left[p] = rows + std::min(i + p, n - 1) * width;
        right[p] = rows + std::min(j + p, n - 1) * width;
    }
    Lanes sums[kSide][kSide];
    UNROLL for (int p = 0; p < kSide; ++p)
        UNROLL for (int q = 0; q < kSide; ++q) sums[p][q] = Lanes::all(0.);
    auto step = [&](auto load) INLINE_LAMBDA {
        Lanes a[kSide];
        UNROLL for (int p = 0; p < kSide; ++p) a[p] = load(left[p]);
        UNROLL for (int q = 0; q < kSide; ++q) {
            const Lanes b = kDiagonal ? a[q] : load(right[q]);
            UNROLL for (int p = 0; p < kSide; ++p)
                if (!kDiagonal || p <= q) sums[p][q] = sums[p][q] + a[p] * b;
        }
    };
    Index k = 0;
    for (; k + kLanes <= width; k += kLanes) step([&](const float* row) INLINE_LAMBDA { return widened(row + k); });
    if (k < width) step([&](const float* row) INLINE_LAMBDA { return widened(row + k, width - k); });
    UNROLL for (int p = 0; p < kSide; ++p)
        UNROLL for (int q = 0; q < kSide; ++q)
            if ((!kDiagonal || p <= q) && i + p < n && j + q < n)
                gram[(i + p) * n + j + q] = gram[(j + q) * n + i + p] = sum_lanes(sums[p][q]);
}

inline void gram_of(const float* rows, Index n, Index width, double* gram) {
    if (n == 1) return gram_tile<1, true>(rows, n, width, 0, 0, gram);
    if (n == 2) return gram_tile<2, true>(rows, n, width, 0, 0, gram);
    for (Index i = 0; i < n; i += 4) {
        gram_tile<4, true>(rows, n, width, i, i, gram);
        for (Index j = i + 4; j < n; j += 4) gram_tile<4, false>(rows, n, width, i, j, gram);
    }
}

// max(0, sum_{t, t'} inner[t, t'] outer[t, t']) + (rounding * sum_t sqrt(inner[t, t] outer[t, t]))^2, inner 1 if null
inline double square_of(const double* inner, const double* outer, Index n, double rounding) {
    double square = 0., size = 0.;
    for (Index k = 0; k < n * n; ++k) square += inner ? inner[k] * outer[k] : outer[k];
    for (Index k = 0; k < n * n; k += n + 1) size += std::sqrt(inner ? inner[k] * outer[k] : outer[k]);
    size *= rounding;
    return (square < 0. ? 0. : square) + size * size;
}

inline double product_of(const float* one, const float* other, Index width) {
    Lanes sum = Lanes::all(0.);
    Index k = 0;
    for (; k + kLanes <= width; k += kLanes) sum = sum + widened(one + k) * widened(other + k);
    if (k < width) sum = sum + widened(one + k, width - k) * widened(other + k, width - k);
    return sum_lanes(sum);
}

// The same as `square_of` where the product of a_t and a_t' is 1 if both look up the same row, and else 0
inline double square_of_look_ups(const float* rows, const int64_t* looked_up, Index n, Index width, double rounding) {
    double square = 0., size = 0.;
    for (Index t = 0; t < n; ++t) {
        if (looked_up[t] < 0) continue;
        const double own = product_of(rows + t * width, rows + t * width, width);
        square += own;
        size += std::sqrt(own);
        for (Index s = 0; s < t; ++s)
            if (looked_up[s] == looked_up[t]) square += 2. * product_of(rows + s * width, rows + t * width, width);
    }
    size *= rounding;
    return (square < 0. ? 0. : square) + size * size;
}

// squares[u] = max(0, sum_{t, t'} (a_t . a_t') (b_t . b_t')) + (rounding * sum_t |a_t| |b_t|)^2
inline void unit_squares(const ProductArguments& task, int threads) {
    Index longest = 0;
    for (Index u = 0; u < task.n_units; ++u) longest = std::max(longest, task.offsets[u + 1] - task.offsets[u]);
    threads = int(std::clamp<Index>(task.n_units / kUnitsAtOnce, 1, threads));
    std::vector<Buffer<double>> grams;
    for (int t = 0; t < threads; ++t) grams.push_back(zeros<double>(task.looked_up ? 1 : 2 * longest * longest));
    in_parallel(threads, (task.n_units + kUnitsAtOnce - 1) / kUnitsAtOnce, [&](int thread, Index turn) {
        double* const inner = grams[thread].get();
        for (Index u = turn * kUnitsAtOnce; u < std::min((turn + 1) * kUnitsAtOnce, task.n_units); ++u) {
            const Index first = task.offsets[u], n = task.offsets[u + 1] - first;
            if (task.looked_up) {
                task.squares[u] = square_of_look_ups(task.outgoing + first * task.rows, task.looked_up + first, n,
                                                     task.rows, task.rounding);
                continue;
            }
            double* const outer = inner + n * n;
            gram_of(task.outgoing + first * task.rows, n, task.rows, outer);
            if (task.incoming) gram_of(task.incoming + first * task.columns, n, task.columns, inner);
            task.squares[u] = square_of(task.incoming ? inner : nullptr, outer, n, task.rounding);
            if (task.of_ones) task.of_ones[u] = square_of(nullptr, outer, n, task.rounding);
        }
    });
}

// total[m, k .. k + 2 kLanes] += sum_t scaled[t, m] a[t, k ..] for `Rows` values of m
template <int Rows>
inline void add_columns(const ProductArguments& task, const double* scaled, Index n, Index m, Index k) {
    const Index columns = task.columns, rows = task.rows, here = std::min<Index>(2 * kLanes, columns - k);
    const bool whole = here == 2 * kLanes;
    double* const total = task.total + m * columns + k;
    Lanes sums[Rows][2];
    double held[2 * kLanes] = {};
    UNROLL for (int r = 0; r < Rows; ++r) {
        if (!whole) std::copy(total + r * columns, total + r * columns + here, held);
        const double* const from = whole ? total + r * columns : held;
        sums[r][0] = Lanes::load(from);
        sums[r][1] = Lanes::load(from + kLanes);
    }
    const float* row = task.incoming + k;
    const double* factors = scaled + m;
    auto step = [&](Lanes one, Lanes two) INLINE_LAMBDA {
        UNROLL for (int r = 0; r < Rows; ++r) {
            sums[r][0] = sums[r][0] + one * factors[r];
            sums[r][1] = sums[r][1] + two * factors[r];
        }
        row += columns;
        factors += rows;
    };
    if (whole) {
        for (Index t = 0; t < n; ++t) {
            __builtin_prefetch(row + 2 * kLanes);  // of the next columns, which are added up in the next call
            step(widened(row), widened(row + kLanes));
        }
    } else {
        for (Index t = 0; t < n; ++t) step(widened(row, here), widened(row + kLanes, std::max<Index>(here - kLanes, 0)));
    }
    UNROLL for (int r = 0; r < Rows; ++r) {
        double* const to = whole ? total + r * columns : held;
        sums[r][0].store(to);
        sums[r][1].store(to + kLanes);
        if (!whole) std::copy(held, held + here, total + r * columns);
    }
}

constexpr int kRowsTogether = KERNEL_VECTOR_BYTES == 64 ? 10 : 5;  // of which registers hold two vectors of sums each

// total[m, k] += sum_u factors[u] sum_t b[t, m] a[t, k], position by position; ones_total the same with ones for a
inline void unit_sums(const ProductArguments& task, int threads) {
    const Index n = task.offsets[task.n_units] - task.offsets[0], rows = task.rows;
    Buffer<double> scaled = zeros<double>(n * rows);
    for (Index u = 0; u < task.n_units; ++u)
        for (Index t = task.offsets[u] * rows; t < task.offsets[u + 1] * rows; ++t)
            scaled[t] = task.factors[u] * double(task.outgoing[t]);
    if (double* const ones = task.incoming ? task.ones_total : task.total)
        for (Index t = 0; t < n; ++t)
            for (Index m = 0; m < rows; ++m) ones[m] += scaled[t * rows + m];
    if (!task.incoming) return;
    in_parallel(threads, (task.columns + 2 * kLanes - 1) / (2 * kLanes), [&](int, Index turn) {
        const Index k = turn * 2 * kLanes;
        Index m = 0;
        for (; m + kRowsTogether <= rows; m += kRowsTogether) add_columns<kRowsTogether>(task, scaled.get(), n, m, k);
        for (; m + 5 <= rows; m += 5) add_columns<5>(task, scaled.get(), n, m, k);
        for (; m < rows; ++m) add_columns<1>(task, scaled.get(), n, m, k);
    });
}
