// Normal numbers from a ChaCha20 stream.  Included once per instruction set; every set gives the same bits.

constexpr int kTogether = 2;  // batches of blocks that are made together

template <typename V>
INLINE V rotate(V x, int n) { return (x << n) | (x >> (32 - n)); }

// The last words of blocks that each have a counter and a nonce of their own
struct OwnPlaces {
    const uint64_t *counters, *nonces;

    template <typename V, int lanes>
    INLINE void fill(int, int b, V (&ends)[4]) const {
        uint32_t halves[4][lanes];
        for (int lane = 0; lane < lanes; ++lane) {
            halves[0][lane] = uint32_t(counters[b + lane]);
            halves[1][lane] = uint32_t(counters[b + lane] >> 32);
            halves[2][lane] = uint32_t(nonces[b + lane]);
            halves[3][lane] = uint32_t(nonces[b + lane] >> 32);
        }
        UNROLL for (int i = 0; i < 4; ++i) ends[i] = load<V>(halves[i]);
    }
};

// The last words of blocks in a row: block b of set s has the number counter + s * kBlocks + b
struct InARow {
    uint64_t counter, nonce;

    template <typename V, int lanes>
    INLINE void fill(int s, int b, V (&ends)[4]) const {
        const uint64_t first = counter + uint64_t(s * kBlocks + b);
        V lane;
        UNROLL for (int i = 0; i < lanes; ++i) lane[i] = uint32_t(i);
        ends[0] = lane + uint32_t(first);
        ends[1] = uint32_t(first >> 32) - (V)(ends[0] < uint32_t(first));  // less -1 where the lower half overflowed
        ends[2] = V{} + uint32_t(nonce);
        ends[3] = V{} + uint32_t(nonce >> 32);
    }
};

// words[s][i][b] = word i of block b of set s (RFC 8439 section 2.3, with a 64-bit counter and nonce, which `places` fills
// in).  Each operation waits for the one before it, so where registers allow, sets of blocks are made side by side.
template <int Sets, typename Places>
inline void chacha20_at(const uint32_t* key, Places places, uint32_t (*words)[16][kBlocks]) {
    constexpr int lanes = KERNEL_VECTOR_BYTES / 4, side = KERNEL_VECTOR_BYTES == 64 ? Sets : 1;
    using V = typename VectorOf<uint32_t, lanes>::type;
    for (int s = 0; s < Sets; s += side)
        for (int b = 0; b < kBlocks; b += lanes) {
            V start[12], ends[side][4], x[side][16];
            const uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
            UNROLL for (int i = 0; i < 4; ++i) start[i] = V{} + constants[i];
            UNROLL for (int i = 0; i < 8; ++i) start[4 + i] = V{} + key[i];
            UNROLL for (int k = 0; k < side; ++k) {
                places.template fill<V, lanes>(s + k, b, ends[k]);
                UNROLL for (int i = 0; i < 12; ++i) x[k][i] = start[i];
                UNROLL for (int i = 0; i < 4; ++i) x[k][12 + i] = ends[k][i];
            }
            auto quarter = [](V (&y)[16], int i, int j, int k, int l) INLINE_LAMBDA {
                y[i] += y[j]; y[l] = rotate(y[l] ^ y[i], 16);
                y[k] += y[l]; y[j] = rotate(y[j] ^ y[k], 12);
                y[i] += y[j]; y[l] = rotate(y[l] ^ y[i], 8);
                y[k] += y[l]; y[j] = rotate(y[j] ^ y[k], 7);
            };
            UNROLL for (int round = 0; round < 10; ++round) {
                UNROLL for (int k = 0; k < side; ++k)
                    UNROLL for (int i = 0; i < 4; ++i) quarter(x[k], i, 4 + i, 8 + i, 12 + i);
                UNROLL for (int k = 0; k < side; ++k)
                    UNROLL for (int i = 0; i < 4; ++i)
                        quarter(x[k], i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
            }
            UNROLL for (int k = 0; k < side; ++k) {
                UNROLL for (int i = 0; i < 12; ++i) store(&words[s + k][i][b], x[k][i] + start[i]);
                UNROLL for (int i = 0; i < 4; ++i) store(&words[s + k][12 + i][b], x[k][12 + i] + ends[k][i]);
            }
        }
}

// words[s][i][b] = word i of block number counter + s * kBlocks + b
template <int Sets>
inline void chacha20(const uint32_t* key, uint64_t counter, uint64_t nonce, uint32_t (*words)[16][kBlocks]) {
    chacha20_at<Sets>(key, InARow{counter, nonce}, words);
}

// out[k] = the first 64 bits of the block whose counter is points[2 k] and whose nonce is points[2 k + 1]
inline void fill_keyed(const uint32_t* key, Index first, Index last, Index n, const uint64_t* points, uint64_t* out) {
    uint32_t words[16][kBlocks];
    uint64_t counters[kBlocks] = {}, nonces[kBlocks] = {};
    for (Index i = first; i < last; ++i) {
        const Index start = i * kBlocks, here = std::min(Index(kBlocks), n - start);
        for (Index k = 0; k < here; ++k) counters[k] = points[2 * (start + k)], nonces[k] = points[2 * (start + k) + 1];
        chacha20_at<1>(key, OwnPlaces{counters, nonces}, &words);
        for (Index k = 0; k < here; ++k) out[start + k] = uint64_t(words[1][k]) << 32 | words[0][k];
    }
}

// Functions of several vectors at a time: each operation on one of them waits for the one before it, so operations on
// all of them stand beside one another.
struct Doubles {
    static constexpr int lanes = KERNEL_VECTOR_BYTES / 8;
    using V = typename VectorOf<double, lanes>::type;
    using Bits = typename VectorOf<uint64_t, lanes>::type;

    static INLINE Bits bits(V x) { return (Bits)x; }
    static INLINE V value(Bits x) { return (V)x; }

    // 1 + k / 2^52 for the upper 52 bits k of 64-bit words, of which the two halves lie apart: for twice as many lanes
    static INLINE void one_to_two(const uint32_t* low, const uint32_t* high, V* out) {
        using Halves = typename VectorOf<uint32_t, 2 * lanes>::type;
        const Halves a = load<Halves>(low), b = load<Halves>(high);
        Halves first, second;
        UNROLL for (int i = 0; i < 2 * lanes; ++i) {
            first[i] = i / 2 + (i % 2) * 2 * lanes;
            second[i] = first[i] + lanes;
        }
        out[0] = value((Bits)__builtin_shuffle(a, b, first) >> 12 | 0x3ff0000000000000u);
        out[1] = value((Bits)__builtin_shuffle(a, b, second) >> 12 | 0x3ff0000000000000u);
    }

    template <int N>
    static INLINE void horner(const V (&x)[N], const double* coefficients, int n, V (&sums)[N]) {
        UNROLL for (int k = 0; k < N; ++k) sums[k] = V{} + coefficients[n - 1];
        UNROLL for (int i = n - 2; i >= 0; --i)
            UNROLL for (int k = 0; k < N; ++k) sums[k] = sums[k] * x[k] + coefficients[i];
    }

    // log of positive normal numbers: exponent * log 2 + 2 artanh((m - 1) / (m + 1)), m in (0.7, 1.42)
    template <int N>
    static INLINE void logarithm(const V (&x)[N], V (&logs)[N]) {
        constexpr double artanh[] = {1., 1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15, 1. / 17, 1. / 19,
                                     1. / 21};
        V exponents[N], s[N], squares[N];
        UNROLL for (int k = 0; k < N; ++k) {
            Bits shifted = bits(x[k]) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);  // m starts at sqrt(1/2)
            exponents[k] = value((shifted >> 52) + 0x4330000000000000u) - (4503599627370496. + 1023.);
            V m = value((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
            s[k] = (m - 1.) / (m + 1.);
            squares[k] = s[k] * s[k];
        }
        horner(squares, artanh, 11, logs);
        UNROLL for (int k = 0; k < N; ++k) logs[k] = exponents[k] * 0.6931471805599453 + 2. * s[k] * logs[k];
    }

    // cosine and sine of 2 pi turn, turn in [0, 1]: Taylor polynomials on +- pi/4, then the quadrant
    template <int N>
    static INLINE void circle(const V (&turns)[N], V (&cosines)[N], V (&sines)[N]) {
        constexpr double sin_taylor[] = {1., -1. / 6, 1. / 120, -1. / 5040, 1. / 362880, -1. / 39916800,
                                         1. / 6227020800., -1. / 1307674368000.};
        constexpr double cos_taylor[] = {1., -1. / 2, 1. / 24, -1. / 720, 1. / 40320, -1. / 3628800, 1. / 479001600,
                                         -1. / 87178291200., 1. / 20922789888000.};
        Bits quadrants[N];
        V x[N], squares[N];
        UNROLL for (int k = 0; k < N; ++k) {
            V rounded = turns[k] * 4. + 6755399441055744.;  // adding 1.5 * 2^52 rounds to an integer, in the low bits
            quadrants[k] = bits(rounded);
            x[k] = (turns[k] * 4. - (rounded - 6755399441055744.)) * 1.5707963267948966;
            squares[k] = x[k] * x[k];
        }
        horner(squares, sin_taylor, 8, sines);
        horner(squares, cos_taylor, 9, cosines);
        UNROLL for (int k = 0; k < N; ++k) {
            V s = x[k] * sines[k], c = cosines[k];
            auto odd = (quadrants[k] & 1) != 0;
            cosines[k] = value(bits(odd ? s : c) ^ ((quadrants[k] + 1) & 2) << 62);
            sines[k] = value(bits(odd ? c : s) ^ (quadrants[k] & 2) << 62);
        }
    }
};

// Box-Muller on kBlocks blocks: 64-bit words 0..3 of a block give radii, words 4..7 angles.  With `Spread`, also how far
// the number may be from what the same words, followed by any others, would give in exact arithmetic.
template <bool Spread>
inline void normals_of(const uint32_t (*words)[kBlocks], double* out, double* spread) {
    using V = Doubles::V;
    for (int b = 0; b < kBlocks; b += 2 * Doubles::lanes) {
        V uniforms[8], turns[8], radii[8], cosines[8], sines[8];
        UNROLL for (int pair = 0; pair < 4; ++pair) {
            Doubles::one_to_two(&words[2 * pair][b], &words[2 * pair + 1][b], uniforms + 2 * pair);
            Doubles::one_to_two(&words[2 * pair + 8][b], &words[2 * pair + 9][b], turns + 2 * pair);
        }
        UNROLL for (int k = 0; k < 8; ++k) uniforms[k] -= 0x1.fffffffffffffp-1, turns[k] -= 1.;
        Doubles::logarithm(uniforms, radii);
        UNROLL for (int k = 0; k < 8; ++k) {
            const V square = -2. * radii[k];
            UNROLL for (int i = 0; i < Doubles::lanes; ++i) radii[k][i] = __builtin_sqrt(square[i]);
        }
        Doubles::circle(turns, cosines, sines);
        UNROLL for (int k = 0; k < 8; ++k) {
            const int at = k / 2 * 2 * kBlocks + b + k % 2 * Doubles::lanes;
            store(out + at, radii[k] * cosines[k]);
            store(out + at + kBlocks, radii[k] * sines[k]);
            if constexpr (Spread) {  // docs/proofs/exact.md: of the functions, and of the words that follow
                V wide = radii[k] * 0x1p-46 + 0x1p-52 / (uniforms[k] * radii[k]);
                wide = uniforms[k] < 0x1p-52 ? V{} + double(INFINITY) : wide;  // no bit set: as far as you like
                store(spread + at, wide);
                store(spread + at + kBlocks, wide);
            }
        }
    }
}

// Calls use(first, numbers, how many) with the normal numbers of each batch; several batches are made together.
template <typename Use>
INLINE void each_batch(const uint32_t* key, uint64_t counter, Index first, Index last, Index n, Use use) {
    uint32_t words[kTogether][16][kBlocks];
    double batch[kNormals];
    for (Index i = first; i < last; i += kTogether) {
        chacha20<kTogether>(key, counter + uint64_t(i) * kBlocks, 0, words);
        for (Index s = 0; s < std::min(Index(kTogether), last - i); ++s) {
            normals_of<false>(words[s], batch, nullptr);
            const Index start = (i + s) * kNormals;
            use(start, batch, std::min(kNormals, n - start));
        }
    }
}

template <typename T>
void fill_normals(const uint32_t* key, uint64_t counter, Index first, Index last, Index n, T* out) {
    each_batch(key, counter, first, last, n, [&](Index start, const double* batch, Index here) INLINE_LAMBDA {
        for (Index k = 0; k < here; ++k) out[start + k] = T(batch[k]);
    });
}

// The nearest whole number, and the even one of two: adding 2^52 to the size rounds it.
INLINE double nearest_whole(double x) {
    constexpr double shift = 4503599627370496.;
    const double size = std::fabs(x), rounded = (size + shift) - shift;
    return std::copysign(size < shift ? rounded : size, x);
}

// Calls use(first, values, numbers, how many) with the normal numbers of each batch and the values beside them: where they
// lie if one run has all of them, else from `held`, in which whatever no run has is 0.
template <typename Use>
INLINE void each_batch_beside(const uint32_t* key, Index first, Index last, Index n, const Runs& runs, Use use) {
    const double zeros[kNormals] = {};
    double held[kNormals];
    Index run = std::upper_bound(runs.ends, runs.ends + runs.n, first * kNormals) - runs.ends;
    each_batch(key, 0, first, last, n, [&](Index start, const double* batch, Index here) INLINE_LAMBDA {
        while (run < runs.n && runs.ends[run] <= start) ++run;
        const Index stop = start + here;
        const double* values = zeros;
        if (run < runs.n && runs.starts(run) < stop) {
            values = runs.values + runs.offsets[run] + (start - runs.starts(run));
            if (runs.starts(run) > start || runs.ends[run] < stop) {
                std::fill(held, held + here, 0.);
                for (Index r = run; r < runs.n && runs.starts(r) < stop; ++r) {
                    const Index from = std::max(start, runs.starts(r)), to = std::min(stop, runs.ends[r]);
                    const double* source = runs.values + runs.offsets[r] + (from - runs.starts(r));
                    std::copy(source, source + (to - from), held + (from - start));
                }
                values = held;
            }
        }
        use(start, values, batch, here);
    });
}

// out = values + scale * normal, rounded to a multiple of step.
template <typename T>
inline void add_normals(const uint32_t* key, Index first, Index last, Index n, const Runs& runs, double scale,
                        double step, T* out) {
    const double per_step = 1. / step;
    auto add = [&](Index start, const double* values, const double* batch, Index here) INLINE_LAMBDA {
        for (Index k = 0; k < here; ++k)
            out[start + k] = T(nearest_whole((batch[k] * scale + values[k]) * per_step) * step);
    };
    each_batch_beside(key, first, last, n, runs, add);
}

// out = sums / 2^shift + scale * normal to the nearest whole number.  Where the true number might lie on the other side
// of a boundary between two whole numbers, `doubtful` says so.
inline void add_rounded(const uint32_t* key, uint64_t counter, Index first, Index last, Index n, const int64_t* sums,
                        int shift, const double* scales, Index n_scales, int64_t* out, uint8_t* doubtful) {
    constexpr double to_whole = 6755399441055744.;  // adding 1.5 * 2^52 rounds to an integer
    const double unit = std::ldexp(1., -shift);
    const int64_t below = (int64_t(1) << shift) - 1;
    uint32_t words[16][kBlocks];
    double normal[kNormals], spread[kNormals], scale[kNormals];
    for (Index i = first; i < last; ++i) {
        chacha20<1>(key, counter + uint64_t(i) * kBlocks, 0, &words);
        normals_of<true>(words, normal, spread);
        const Index start = i * kNormals, here = std::min(kNormals, n - start);
        for (Index k = 0, at = start % n_scales; k < here; ++k, at = at + 1 < n_scales ? at + 1 : 0) scale[k] = scales[at];
        for (Index k = 0; k < here; ++k) {
            const int64_t sum = sums[start + k];
            const double noisy = double(sum & below) * unit + scale[k] * normal[k];
            const double rounded = (noisy + to_whole) - to_whole;
            const double room = 0.5 - std::fabs(noisy - rounded);
            const double error = scale[k] * spread[k] + std::fabs(noisy) * 0x1p-51 + 0x1p-51;
            out[start + k] = wrapped_sum(sum >> shift, int64_t(rounded));
            doubtful[start + k] = !(room > error);  // also where the error is not a number
        }
    }
}
