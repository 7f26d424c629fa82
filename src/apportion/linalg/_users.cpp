// What users compute for themselves, user by user, in one pass that stays in cache: weighted counts
// (_task_counts.hpp), the round on ratings (_rating_round.hpp), regressions under other settings (_solutions.hpp) and
// recommendations (_ranking.hpp); what follows a round, task by task, from released numbers (_information.hpp); and
// sums of products of units' rows, for gradients of linear maps (_unit_products.hpp).
// Plain C interface, loaded with ctypes; Python checks all arguments.
//
// The same bits everywhere.  Only + - * / and the square root are used, each rounded once (the file is compiled without
// contraction to fused operations).  Numbers of independent entries are computed side by side; a sum over a user's
// observations is eight sums of every eighth of them, added up in one fixed tree, however wide the vectors are.  So
// baseline, AVX2 and AVX-512 agree in every bit, and so does the NumPy reference.  No user's numbers depend on another
// user, on the number of threads, or on how users are handed out to them.

#include <algorithm>
#include <cmath>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "_threads.hpp"

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace {

constexpr int kLanes = 8;  // sums over observations are this many sums, whatever the width of a vector

// The arguments of one round on ratings; mirrored by apportion.linalg.user_rounds.
struct RatingArguments {
    Index n_users;
    const int64_t* indptr;         // user j owns observations indptr[j] .. indptr[j + 1]
    const int32_t* tasks;          // ascending within a user, each once
    const void* values;
    const void* weights;           // of observations; null where they are formed from those of tasks
    const double* task_weights;    // null where observations have theirs
    const double* features;        // [n_tasks, dim]: 1, item bias, item vector
    const double* trust;           // [n_tasks]: weight of an observation in the user's regression
    const double* base;            // [dim, dim]
    const double* base_rhs;        // [dim]
    const double* scales;          // [dim - 1], of a row
    const double* vector_weights;  // [n_tasks], of the coordinates of a row behind the first
    const double* summary_scales;  // of the packed second moments
    int64_t* by_task;              // [n_tasks, dim - 1], added to
    int64_t* total;                // [4 + latent (latent + 1) / 2], added to
    Index n_tasks, dim;
    Index most_copies;             // bytes of sums by task that threads may have for themselves
    int32_t double_values, double_weights, starting, unused;
    double low, high, centre, unit;
    double most_leverage, start_norm, shortest_taste, full_vote, least_weight;
    double least_weight_norm, weight_norm;        // weights of tasks are scaled by weight_norm / max(norm, least)
    double clip_norm, inner_norm, shortest_part, per_step;
    double summary_inner_norm, summary_per_step;
};

// The arguments of weighted counts; mirrored by apportion.linalg.task_counts.
struct CountArguments {
    Index n_users, n_tasks;
    const int64_t* indptr;
    const int32_t* tasks;
    const double* task_weights;
    int64_t* sums;  // [n_tasks], added to
    double weight_norm, least_weight_norm, per_step;
};

// The arguments of products of rows with rows; mirrored by apportion.linalg.fixed_order.
struct RankingArguments {
    Index n_left, n_right, dim, depth;  // a depth of 0 asks for all products
    const void *left, *right;           // [n_left, dim], [n_right, dim]
    const int64_t* indptr;              // row j leaves out columns excluded[indptr[j]] .. ; null to leave out none
    const int32_t* excluded;            // ascending within a row
    int32_t* columns;                   // [n_left, depth]
    void* scores;                       // [n_left, depth], or [n_left, n_right]
    double offset;
};

// The arguments of what statistics say of tasks; mirrored by apportion.linalg.information.
struct InformationArguments {
    Index n_tasks, dim;
    const double *design, *spread, *shape, *noise;  // A, S, P [dim, dim] and diag(noise) [dim]
    const double *exposure, *signal, *sampling;     // t, g, s [n_tasks]
    const double* statistics;                       // b [n_tasks, dim]
    double *scores, *each, *total;                  // u [n_tasks, dim], W packed [n_tasks, .] or null, their sum, added to
    double largest;
};

// The arguments of users' solutions; mirrored by apportion.linalg.user_moments.
struct SolutionsArguments {
    Index n_users, dim;
    const double *base, *base_rhs;   // [dim, dim], [dim]
    const double *grams, *moments;   // lower triangles [dim (dim + 1) / 2, n_users], [dim, n_users]
    double* solutions;               // [dim, n_users]
};

// The arguments of products of units' rows; mirrored by apportion.linalg.unit_products.
struct ProductArguments {
    Index n_units, rows, columns;     // of the gradient that the products make
    const int64_t* offsets;           // unit u has positions offsets[u] .. offsets[u + 1]; starts with 0
    const float *incoming, *outgoing; // [positions, columns], or null for ones; [positions, rows]
    const double* factors;            // of units
    double *squares, *total;          // [n_units]; [rows, columns], added to
    double *of_ones, *ones_total;     // the same for ones in place of incoming: [n_units], [rows]; or null
    double rounding;
    const int64_t* looked_up;         // [positions]: which unit vector stands for incoming, negative for none; or null
    double inner;                     // to which units are clipped
};

// factors = inner / max(length, inner), of lengths that take both sums together
inline Index clip_units(const ProductArguments& task) {
    double* const factors = const_cast<double*>(task.factors);
    for (Index u = 0; u < task.n_units; ++u) {
        const double square = task.squares[u] + (task.of_ones ? task.of_ones[u] : 0.);
        const double length = std::sqrt(square < 0. ? 0. : square);
        if (!(length <= std::numeric_limits<double>::max())) return u;
        factors[u] = 1. / std::max(length, task.inner) * task.inner;
    }
    return kSuccess;
}

constexpr Index kUnitsAtOnce = 16;               // whose squared lengths a thread forms at a time
constexpr Index kTasksAtOnce = 1024;             // of which precisions are added up, before the sums are
constexpr Index kRowsAtOnce = 96;                // of products, by one thread
constexpr Index kTurn = 4096;                    // observations handed to a thread at a time

// Turn i covers users turns[i] .. turns[i + 1], of about equal work.
std::vector<Index> turns_of(const int64_t* indptr, Index n_users, Index extra) {
    std::vector<Index> turns{0};
    Index work = 0;
    for (Index j = 0; j < n_users; ++j) {
        work += indptr[j + 1] - indptr[j] + extra;
        if (work >= kTurn || j + 1 == n_users) {
            turns.push_back(j + 1);
            work = 0;
        }
    }
    return turns;
}

// The first user whose tasks are not in ascending order, each once and within the list; else kSuccess.
template <typename Arguments>
Index first_out_of_order(const Arguments& task, int threads, const std::vector<Index>& turns) {
    std::atomic<Index> failed{kSuccess};
    in_parallel(threads, Index(turns.size()) - 1, [&](int, Index turn) {
        for (Index j = turns[turn]; j < turns[turn + 1]; ++j) {
            int64_t before = -1;
            bool good = true;
            for (Index k = task.indptr[j]; k < task.indptr[j + 1]; before = task.tasks[k++])
                good &= task.tasks[k] > before;
            if (!good || before >= task.n_tasks) keep_smallest(failed, j);
        }
    });
    return failed;
}

}  // namespace

// ---- one namespace per instruction set -----------------------------------------------------------------------

namespace {
#define KERNEL_VECTOR_BYTES 16
namespace users_baseline {
#include "_lanes.hpp"
#include "_task_counts.hpp"
#include "_rating_round.hpp"
#include "_ranking.hpp"
#include "_information.hpp"
#include "_solutions.hpp"
#include "_unit_products.hpp"
}
#undef KERNEL_VECTOR_BYTES

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERNEL_X86
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define KERNEL_VECTOR_BYTES 32
namespace users_avx2 {
#include "_lanes.hpp"
#include "_task_counts.hpp"
#include "_rating_round.hpp"
#include "_ranking.hpp"
#include "_information.hpp"
#include "_solutions.hpp"
#include "_unit_products.hpp"
}
#undef KERNEL_VECTOR_BYTES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#define KERNEL_VECTOR_BYTES 64
namespace users_avx512 {
#include "_lanes.hpp"
#include "_task_counts.hpp"
#include "_rating_round.hpp"
#include "_ranking.hpp"
#include "_information.hpp"
#include "_solutions.hpp"
#include "_unit_products.hpp"
}
#undef KERNEL_VECTOR_BYTES
#pragma GCC pop_options
#endif
}  // namespace

// ---- the C interface -----------------------------------------------------------------------------------------

#ifdef KERNEL_X86
#define AT_LEVEL(level, call)                                                                                      \
    ((level) >= 2 ? users_avx512::call : (level) == 1 ? users_avx2::call : users_baseline::call)
#else
#define AT_LEVEL(level, call) (users_baseline::call)
#endif

extern "C" {

int kernel_best_level();

// Adds every user's part of the round to by_task and total; names the first user whose tasks are out of order.
Index users_rating_round(int level, int threads, const RatingArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        const std::vector<Index> turns = turns_of(task->indptr, task->n_users, 16);
        const Index failed = first_out_of_order(*task, threads, turns);
        if (failed != kSuccess) return failed;
        AT_LEVEL(level, rating_round(*task, threads, turns));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Names the first user whose tasks are out of order.
Index users_out_of_order(int threads, const CountArguments* task) {
    try {
        return first_out_of_order(*task, threads, turns_of(task->indptr, task->n_users, 16));
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Adds every user's weights to sums; names the first user whose tasks are out of order.
Index users_task_counts(int level, int threads, const CountArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        const std::vector<Index> turns = turns_of(task->indptr, task->n_users, 16);
        const Index failed = first_out_of_order(*task, threads, turns);
        if (failed != kSuccess) return failed;
        AT_LEVEL(level, task_counts(*task, threads, turns));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Fills columns and scores with the largest products of each row, or scores with all of them.
Index users_ranking(int level, int threads, int doubles, const RankingArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        AT_LEVEL(level, ranking(*task, threads, doubles != 0));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Fills scores and precisions of tasks; adds the sum of precisions to total.
Index users_information(int level, int threads, const InformationArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        AT_LEVEL(level, information(*task, threads));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Fills users' solutions.
Index users_solutions(int level, int threads, const SolutionsArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        AT_LEVEL(level, solutions(*task, threads));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Fills squares with the squared lengths of units' sums of products.
Index users_unit_squares(int level, int threads, const ProductArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        AT_LEVEL(level, unit_squares(*task, threads));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Forms units' squared lengths and the factors that clip them, and adds their sums of products times these; nothing is
// added if a length is not finite, and the result is such a unit.
Index users_unit_clipped(int level, int threads, const ProductArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        AT_LEVEL(level, unit_squares(*task, threads));
        const Index failed = clip_units(*task);
        if (failed == kSuccess) AT_LEVEL(level, unit_sums(*task, threads));
        return failed;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

// Adds units' sums of products, each times its factor, to total.
Index users_unit_sums(int level, int threads, const ProductArguments* task) {
    level = std::min(level, kernel_best_level());
    try {
        AT_LEVEL(level, unit_sums(*task, threads));
        return kSuccess;
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    }
}

}  // extern "C"
