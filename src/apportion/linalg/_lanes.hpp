// Eight doubles side by side, in as many vectors as the instruction set needs for them.  Included once per set.

typedef double Part __attribute__((vector_size(KERNEL_VECTOR_BYTES)));
typedef int64_t WholePart __attribute__((vector_size(KERNEL_VECTOR_BYTES)));
typedef uint64_t BitsPart __attribute__((vector_size(KERNEL_VECTOR_BYTES)));

constexpr int kPart = KERNEL_VECTOR_BYTES / sizeof(double);  // numbers in one vector

// The numbers of two vectors in turn: of their first halves, or of their second ones
template <bool Second>
INLINE Part in_turn(Part a, Part b) {
    WholePart places;
    UNROLL for (int i = 0; i < kPart; ++i) places[i] = (i % 2) * kPart + i / 2 + (Second ? kPart / 2 : 0);
    return __builtin_shuffle(a, b, places);
}

// Rows become columns.
INLINE void transpose(Part (&rows)[kPart]) {
    UNROLL for (int done = 1; done < kPart; done *= 2) {
        Part mixed[kPart];
        UNROLL for (int i = 0; i < kPart / 2; ++i) {
            mixed[2 * i] = in_turn<false>(rows[i], rows[i + kPart / 2]);
            mixed[2 * i + 1] = in_turn<true>(rows[i], rows[i + kPart / 2]);
        }
        UNROLL for (int i = 0; i < kPart; ++i) rows[i] = mixed[i];
    }
}

struct Lanes {
    static constexpr int n_parts = kLanes * sizeof(double) / KERNEL_VECTOR_BYTES;
    Part part[n_parts];

    static INLINE Lanes load(const double* from) {
        Lanes x;
        UNROLL for (int i = 0; i < n_parts; ++i)
            __builtin_memcpy(&x.part[i], from + i * (kLanes / n_parts), sizeof(Part));
        return x;
    }
    static INLINE Lanes all(double value) {
        Lanes x;
        UNROLL for (int i = 0; i < n_parts; ++i) x.part[i] = value - Part{};
        return x;
    }
    INLINE void store(double* to) const {
        UNROLL for (int i = 0; i < n_parts; ++i)
            __builtin_memcpy(to + i * (kLanes / n_parts), &part[i], sizeof(Part));
    }
};

#define LANEWISE(op)                                                                   \
    INLINE Lanes operator op(Lanes a, Lanes b) {                                       \
        UNROLL for (int i = 0; i < Lanes::n_parts; ++i) a.part[i] = a.part[i] op b.part[i]; \
        return a;                                                                      \
    }                                                                                  \
    INLINE Lanes operator op(Lanes a, double b) {                                      \
        UNROLL for (int i = 0; i < Lanes::n_parts; ++i) a.part[i] = a.part[i] op b;    \
        return a;                                                                      \
    }                                                                                  \
    INLINE Lanes operator op(double a, Lanes b) {                                      \
        UNROLL for (int i = 0; i < Lanes::n_parts; ++i) b.part[i] = a op b.part[i];    \
        return b;                                                                      \
    }
LANEWISE(+)
LANEWISE(-)
LANEWISE(*)
LANEWISE(/)
#undef LANEWISE

INLINE Lanes at_most(Lanes x, double bound) {  // the bound also stands for what is not a number
    UNROLL for (int i = 0; i < Lanes::n_parts; ++i) x.part[i] = x.part[i] < bound ? x.part[i] : bound - Part{};
    return x;
}

INLINE Lanes at_least(Lanes x, double bound) {
    UNROLL for (int i = 0; i < Lanes::n_parts; ++i) x.part[i] = x.part[i] > bound ? x.part[i] : bound - Part{};
    return x;
}

INLINE Lanes square_root(Lanes x) {
    UNROLL for (int i = 0; i < Lanes::n_parts; ++i)
        UNROLL for (int lane = 0; lane < kLanes / Lanes::n_parts; ++lane)
            x.part[i][lane] = __builtin_sqrt(x.part[i][lane]);
    return x;
}

// The eight sums of every eighth observation, added up: ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
INLINE double sum_lanes(const double* x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

INLINE double sum_lanes(Lanes x) {
    double lanes[kLanes];
    x.store(lanes);
    return sum_lanes(lanes);
}

// Whole steps of numbers below 2^51 of them, cut off towards zero: adding 2^52 to the size rounds it to the nearest.
INLINE void whole_steps(Lanes x, int64_t* to) {
    constexpr double shift = 4503599627370496., signed_shift = 6755399441055744.;
    UNROLL for (int i = 0; i < Lanes::n_parts; ++i) {
        const Part size = x.part[i] < 0. ? -x.part[i] : x.part[i];
        Part rounded = (size + shift) - shift;
        rounded = rounded > size ? rounded - 1. : rounded;
        const Part whole = x.part[i] < 0. ? -rounded : rounded;
        const WholePart bits = (WholePart)(whole + signed_shift) - (WholePart)(signed_shift - Part{});
        __builtin_memcpy(to + i * (kLanes / Lanes::n_parts), &bits, sizeof bits);
    }
}
