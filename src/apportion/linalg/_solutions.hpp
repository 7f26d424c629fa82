// Each user's solution of (base + Gram) x = base_rhs + moment, of small systems: L^-T L^-1 (base_rhs + moment) with
// base + Gram = L L'.  Included once per instruction set.
//
// rating_reference.solved_with says the same in NumPy, operation by operation; keep the two alike.  Eight users lie side
// by side, and nothing is shared between them.

template <int Dim>
struct SolutionsWorker {
    const SolutionsArguments& task;
    const Index dim = task.dim;
    Buffer<double> lower = zeros<double>(dim * dim * kLanes);    // L, its diagonal as reciprocals
    Buffer<double> inverse = zeros<double>(dim * dim * kLanes);  // L^-1
    Buffer<double> vectors = zeros<double>(2 * dim * kLanes);    // the right-hand side, and L^-1 times it

    explicit SolutionsWorker(const SolutionsArguments& task) : task(task) {}

    INLINE Index n_features() const { return Dim ? Dim : dim; }

    void solve(Index first, Index here) {
        factor(first, here);
        invert();
        const Index dim = n_features();
        double *rhs = vectors.get(), *middle = rhs + dim * kLanes;
        for (Index r = 0; r < dim; ++r)
            (some(task.moments + r * task.n_users + first, here) + task.base_rhs[r]).store(rhs + r * kLanes);
        for (Index r = 0; r < dim; ++r) {
            Lanes sum = at(inverse, r, 0) * Lanes::load(rhs);
            for (Index c = 1; c <= r; ++c) sum = sum + at(inverse, r, c) * Lanes::load(rhs + c * kLanes);
            sum.store(middle + r * kLanes);
        }
        for (Index c = 0; c < dim; ++c) {
            Lanes sum = at(inverse, c, c) * Lanes::load(middle + c * kLanes);
            for (Index r = c + 1; r < dim; ++r) sum = sum + at(inverse, r, c) * Lanes::load(middle + r * kLanes);
            double held[kLanes];
            sum.store(held);
            std::copy_n(held, here, task.solutions + c * task.n_users + first);
        }
    }

    INLINE Lanes at(const Buffer<double>& matrix, Index r, Index c) const {
        return Lanes::load(matrix.get() + (r * n_features() + c) * kLanes);
    }

    // Some numbers, zeros after them
    static INLINE Lanes some(const double* from, Index here) {
        if (here == kLanes) return Lanes::load(from);
        double held[kLanes] = {};
        std::copy_n(from, here, held);
        return Lanes::load(held);
    }

    // A user without a factor goes on with a diagonal of 1 from the entry on that was not positive.
    INLINE void factor(Index first, Index here) {
        const Index dim = n_features();
        double* const to = lower.get();
        bool solved[kLanes];
        std::fill_n(solved, kLanes, true);
        for (Index j = 0; j < dim; ++j) {
            Lanes reciprocal = Lanes::all(0);
            for (Index i = j; i < dim; ++i) {
                const double* gram = task.grams + (i * (i + 1) / 2 + j) * task.n_users + first;
                Lanes entry = some(gram, here) + task.base[i * dim + j];
                for (Index k = 0; k < j; ++k) entry = entry - at(lower, j, k) * at(lower, i, k);
                if (i == j) reciprocal = 1. / square_root(or_one(entry, solved));
                (i == j ? reciprocal : entry * reciprocal).store(to + (i * dim + j) * kLanes);
            }
        }
    }

    static INLINE Lanes or_one(Lanes entry, bool* solved) {
        double held[kLanes];
        entry.store(held);
        for (int lane = 0; lane < kLanes; ++lane) {
            solved[lane] = solved[lane] && held[lane] > 0 && held[lane] < INFINITY;
            if (!solved[lane]) held[lane] = 1;
        }
        return Lanes::load(held);
    }

    INLINE void invert() {
        const Index dim = n_features();
        double* const to = inverse.get();
        for (Index r = 0; r < dim; ++r) {
            const Lanes reciprocal = at(lower, r, r);
            for (Index c = 0; c < r; ++c) {
                Lanes sum = at(lower, r, c) * at(inverse, c, c);
                for (Index k = c + 1; k < r; ++k) sum = sum + at(lower, r, k) * at(inverse, k, c);
                (sum * (0. - reciprocal)).store(to + (r * dim + c) * kLanes);
            }
            reciprocal.store(to + (r * dim + r) * kLanes);
        }
    }
};

template <int Dim>
void solutions_of(const SolutionsArguments& task, int threads) {
    constexpr Index at_once = 1024;
    const Index turns = (task.n_users + at_once - 1) / at_once;
    threads = int(std::clamp<Index>(turns, 1, threads));
    std::vector<std::unique_ptr<SolutionsWorker<Dim>>> workers;
    for (int t = 0; t < threads; ++t) workers.push_back(std::make_unique<SolutionsWorker<Dim>>(task));
    in_parallel(threads, turns, [&](int thread, Index turn) {
        const Index end = std::min((turn + 1) * at_once, task.n_users);
        for (Index j = turn * at_once; j < end; j += kLanes)
            workers[thread]->solve(j, std::min<Index>(kLanes, end - j));
    });
}

inline void solutions(const SolutionsArguments& task, int threads) {
    if (task.dim == 10) solutions_of<10>(task, threads);  // of ratings, by default
    else solutions_of<0>(task, threads);
}
