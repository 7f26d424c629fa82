// What noisy statistics say of every task's parameters: its precision W = t^2 A' V^-1 A and score u = t A' V^-1 b, with
// V = g S + s P + diag(noise) = L L'.  Included once per instruction set.
//
// information.py says the same in NumPy, operation by operation; keep the two alike.  Eight tasks lie side by side, and
// nothing is shared between them but the sums of W: those are added up by turns of kTasksAtOnce tasks.

template <int Dim>
struct InformationWorker {
    const InformationArguments& task;
    const Index dim = task.dim;
    Buffer<double> lower = zeros<double>(dim * dim * kLanes);      // L, its diagonal as reciprocals
    Buffer<double> solved = zeros<double>(dim * (dim + 1) * kLanes);  // L^-1 (t A, b)
    Buffer<double> found = zeros<double>((dim + n_packed()) * kLanes);  // u, then W

    explicit InformationWorker(const InformationArguments& task) : task(task) {}

    INLINE Index n_features() const { return Dim ? Dim : dim; }
    INLINE Index n_packed() const { return n_features() * (n_features() + 1) / 2; }

    // Tasks first .. first + kTasksAtOnce - 1; sums [n_packed] are the sum of their W
    void turn(Index first, double* sums) {
        const Index end = std::min(first + kTasksAtOnce, task.n_tasks), size = n_packed();
        Buffer<double> lanes = zeros<double>(size * kLanes);
        for (Index i = first; i < end; i += kLanes) {
            const Index here = std::min<Index>(kLanes, end - i);
            factor(some(task.signal + i, here), some(task.sampling + i, here));
            substitute(i, here);
            multiply();
            for (Index lane = 0; lane < here; ++lane) finish(i + lane, lane);
            const double* each = found.get() + n_features() * kLanes;
            for (Index c = 0; c < size; ++c)
                (Lanes::load(&lanes[c * kLanes]) + Lanes::load(each + c * kLanes)).store(&lanes[c * kLanes]);
        }
        for (Index c = 0; c < size; ++c) sums[c] = sum_lanes(&lanes[c * kLanes]);
    }

    // Some numbers, zeros after them
    static INLINE Lanes some(const double* from, Index here) {
        double held[kLanes] = {};
        std::copy_n(from, here, held);
        return Lanes::load(held);
    }

    INLINE void factor(Lanes signal, Lanes sampling) {
        const Index dim = n_features();
        double* const to = lower.get();
        for (Index j = 0; j < dim; ++j) {
            Lanes reciprocal = Lanes::all(0);
            for (Index i = j; i < dim; ++i) {
                Lanes entry = signal * task.spread[i * dim + j] + sampling * task.shape[i * dim + j];
                if (i == j) entry = entry + task.noise[i];
                for (Index k = 0; k < j; ++k)
                    entry = entry - Lanes::load(to + (j * dim + k) * kLanes) * Lanes::load(to + (i * dim + k) * kLanes);
                if (i == j) reciprocal = 1. / square_root(entry);
                (i == j ? reciprocal : entry * reciprocal).store(to + (i * dim + j) * kLanes);
            }
        }
    }

    INLINE void substitute(Index first, Index here) {
        const Index dim = n_features(), wide = dim + 1;
        const Lanes exposure = some(task.exposure + first, here);
        for (Index r = 0; r < dim; ++r) {
            double* const row = solved.get() + r * wide * kLanes;
            for (Index c = 0; c < dim; ++c) (exposure * task.design[r * dim + c]).store(row + c * kLanes);
            for (Index lane = 0; lane < kLanes; ++lane)
                row[dim * kLanes + lane] = lane < here ? task.statistics[(first + lane) * dim + r] : 0;
            const double* const own = lower.get() + r * dim * kLanes;
            for (Index c = 0; c < wide; ++c) {
                Lanes sum = Lanes::load(row + c * kLanes);
                for (Index k = 0; k < r; ++k)
                    sum = sum - Lanes::load(own + k * kLanes) * Lanes::load(solved.get() + (k * wide + c) * kLanes);
                (sum * Lanes::load(own + r * kLanes)).store(row + c * kLanes);
            }
        }
    }

    INLINE void multiply() {
        const Index dim = n_features(), wide = dim + 1;
        double *score = found.get(), *precision = score + dim * kLanes;
        for (Index a = 0; a < dim; ++a, score += kLanes) {
            product(a, dim, wide).store(score);
            for (Index b = 0; b <= a; ++b, precision += kLanes) product(a, b, wide).store(precision);
        }
    }

    INLINE Lanes product(Index a, Index b, Index wide) const {
        const double* rows = solved.get();
        Lanes sum = Lanes::load(rows + a * kLanes) * Lanes::load(rows + b * kLanes);
        for (Index r = 1; r < n_features(); ++r)
            sum = sum + Lanes::load(rows + (r * wide + a) * kLanes) * Lanes::load(rows + (r * wide + b) * kLanes);
        return sum;
    }

    // Write what was found of one task; zeros where there is no solution, or one beyond the largest number
    INLINE void finish(Index at, Index lane) {
        const Index dim = n_features(), size = n_packed();
        double *score = found.get() + lane, *precision = score + dim * kLanes;
        bool good = true;
        for (Index a = 0, diagonal = 0; a < dim; ++a, diagonal += a + 1)
            good &= precision[diagonal * kLanes] <= task.largest && std::abs(score[a * kLanes]) <= task.largest;
        if (!good)
            for (Index c = 0; c < dim + size; ++c) score[c * kLanes] = 0;
        for (Index a = 0; a < dim; ++a) task.scores[at * dim + a] = score[a * kLanes];
        if (task.each)
            for (Index c = 0; c < size; ++c) task.each[at * size + c] = precision[c * kLanes];
    }
};

template <int Dim>
void information_of(const InformationArguments& task, int threads) {
    const Index turns = (task.n_tasks + kTasksAtOnce - 1) / kTasksAtOnce, size = task.dim * (task.dim + 1) / 2;
    threads = int(std::clamp<Index>(turns, 1, threads));
    Buffer<double> sums = zeros<double>(turns * size);
    std::vector<std::unique_ptr<InformationWorker<Dim>>> workers;
    for (int t = 0; t < threads; ++t) workers.push_back(std::make_unique<InformationWorker<Dim>>(task));
    in_parallel(threads, turns, [&](int thread, Index turn) {
        workers[thread]->turn(turn * kTasksAtOnce, &sums[turn * size]);
    });
    for (Index turn = 0; turn < turns; ++turn)
        for (Index c = 0; c < size; ++c) task.total[c] += sums[turn * size + c];
}

inline void information(const InformationArguments& task, int threads) {
    if (task.dim == 9) information_of<9>(task, threads);  // of ratings, by default
    else information_of<0>(task, threads);
}
