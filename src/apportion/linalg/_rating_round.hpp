// One round on ratings.  Per user: a ridge regression of the labels on (1, item bias, item vector), its solutions
// without each observation in turn (Sherman-Morrison), the row that each observation contributes to its task and the
// user's vote on shared moments, both clipped, cut off to whole steps and added up.  Included once per instruction set.
//
// rating_reference.py says the same in NumPy, operation by operation; keep the two alike.
//
// Observations lie side by side: column c of a panel holds the c-th number of each observation of a block, and all
// arithmetic on observations is done for eight of them at a time.  A user with more observations than a block is worked
// through three times, with the same numbers.

constexpr int kTileColumns = KERNEL_VECTOR_BYTES == 64 ? 8 : KERNEL_VECTOR_BYTES == 32 ? 3 : 1;  // fit the registers
constexpr Index kBlockBytes = 65536;  // of panels, near the processor
constexpr Index kAhead = 12;          // observations between asking memory for a row and its use

// sums[r][c] (+)= left[r] * right[c], eight sums each, for R rows and C columns
template <int R, int C>
INLINE void add_products(const double* left, const double* right, Index stride, Index count, bool first, double* sums,
                         Index across) {
    Lanes sum[R][C];
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int c = 0; c < C; ++c)
            sum[r][c] = first ? Lanes::all(0) : Lanes::load(sums + (r * across + c) * kLanes);
    for (Index k = 0; k < count; k += kLanes) {
        Lanes x[R];
        UNROLL for (int r = 0; r < R; ++r) x[r] = Lanes::load(left + r * stride + k);
        UNROLL for (int c = 0; c < C; ++c) {
            const Lanes y = Lanes::load(right + c * stride + k);
            UNROLL for (int r = 0; r < R; ++r) sum[r][c] = sum[r][c] + x[r] * y;
        }
    }
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int c = 0; c < C; ++c) sum[r][c].store(sums + (r * across + c) * kLanes);
}

template <int R, int C>
INLINE void add_some_products(int columns, const double* left, const double* right, Index stride, Index count,
                              bool first, double* sums, Index across) {
    if constexpr (C > 1)
        if (columns < C) return add_some_products<R, C - 1>(columns, left, right, stride, count, first, sums, across);
    add_products<R, C>(left, right, stride, count, first, sums, across);
}

// The same for n_rows rows and the first r + beyond columns of row r, or some more
void add_triangle(const double* left, Index n_rows, const double* right, Index beyond, Index stride, Index count,
                  bool first, double* sums, Index across) {
    for (Index r = 0; r < n_rows; r += 2) {
        const Index rows = std::min<Index>(2, n_rows - r), columns = std::min(r + rows - 1 + beyond, across);
        for (Index c = 0; c < columns; c += kTileColumns) {
            const int width = int(std::min<Index>(kTileColumns, columns - c));
            double* to = sums + (r * across + c) * kLanes;
            if (rows == 2)
                add_some_products<2, kTileColumns>(width, left + r * stride, right + c * stride, stride, count, first,
                                                   to, across);
            else
                add_some_products<1, kTileColumns>(width, left + r * stride, right + c * stride, stride, count, first,
                                                   to, across);
        }
    }
}

// What all threads read: rows of (features, trust, weight) of tasks, each from the start of a cache line
struct TaskRows {
    Index stride;
    Buffer<double> rows;

    TaskRows(const RatingArguments& task, int threads)
        : stride(round_up(task.dim + 2, 8)), rows(zeros<double>(task.n_tasks * stride)) {
        constexpr Index at_once = 1024;
        in_parallel(threads, (task.n_tasks + at_once - 1) / at_once, [&](int, Index part) {
            for (Index i = part * at_once; i < std::min((part + 1) * at_once, task.n_tasks); ++i) {
                double* to = &rows[i * stride];
                std::copy_n(task.features + i * task.dim, task.dim, to);
                to[task.dim] = task.trust[i];
                to[task.dim + 1] = task.task_weights ? task.task_weights[i] : 0;
            }
        });
    }
    INLINE const double* of(Index i) const { return &rows[i * stride]; }
};

// One thread's working memory and the steps it takes.
struct RatingWorker {
    const RatingArguments& task;
    const TaskRows& rows_of_tasks;
    int64_t* by_task;  // this thread's own sums, or those of all
    const bool shared;
    const Index dim = task.dim, width = dim - 1, latent = dim - 2, n_packed = latent * (latent + 1) / 2;
    const Index block = std::clamp<Index>(kBlockBytes / (8 * 4 * dim) / kLanes * kLanes, 64, 1024);
    const Index across = round_up(dim, kLanes);
    Buffer<double> right = zeros<double>((dim + 1) * block);  // labels, then features
    Buffer<double> left = zeros<double>(dim * block);         // trust times features; later weight times taste
    Buffer<double> tastes = zeros<double>(width * block);
    Buffer<double> rows = zeros<double>(width * block);
    Buffer<double> trust = zeros<double>(block), weights = zeros<double>(block);
    Buffer<double> grams = zeros<double>(dim * (dim + 1) * kLanes);
    Buffer<double> seconds = zeros<double>(std::max<Index>(latent * latent, 1) * kLanes);
    Buffer<double> factor = zeros<double>(dim * across), inverse = zeros<double>(dim * across);
    Buffer<double> reciprocal = zeros<double>(dim), middle = zeros<double>(dim), solution = zeros<double>(dim);
    Buffer<double> scratch = zeros<double>(2 * dim * kLanes);
    Buffer<double> summary = zeros<double>(4 + n_packed);
    Buffer<int64_t> total = zeros<int64_t>(4 + n_packed);
    Lanes squares, weight_sums, factor_sums, residual_sums;

    RatingWorker(const RatingArguments& task, const TaskRows& rows_of_tasks, int64_t* by_task, bool shared)
        : task(task), rows_of_tasks(rows_of_tasks), by_task(by_task), shared(shared) {}

    INLINE double value_of(Index k) const {
        return task.double_values ? static_cast<const double*>(task.values)[k] : static_cast<const float*>(task.values)[k];
    }
    INLINE double weight_of(Index k) const {
        return task.double_weights ? static_cast<const double*>(task.weights)[k] : static_cast<const float*>(task.weights)[k];
    }

    void contribute(Index user) {
        const Index begin = task.indptr[user], n = task.indptr[user + 1] - begin;
        if (!n) return;
        const double stretch = task.weights ? 1 : stretch_of(begin, n);
        const bool once = n <= block;
        bool takes_part = false;
        for (Index from = 0; from < n; from += block) {
            const Index count = std::min(block, n - from);
            takes_part |= gather(begin + from, count, stretch);
            add_triangle(left.get(), dim, right.get(), 2, block, count, !from, grams.get(), dim + 1);
        }
        if (!takes_part || !solve()) return;
        squares = weight_sums = factor_sums = residual_sums = Lanes::all(0);
        for (Index from = 0; from < n; from += block) {
            const Index count = std::min(block, n - from);
            if (!once) gather(begin + from, count, stretch);
            form_rows(count, !from);
        }
        const double square = sum_lanes(squares);
        if (!(square < INFINITY) || !vote(std::sqrt(square))) return;
        const double length = std::sqrt(square);
        const double kept = task.inner_norm / (length > task.inner_norm ? length : task.inner_norm);
        for (Index from = 0; from < n; from += block) {
            const Index count = std::min(block, n - from);
            if (!once) gather(begin + from, count, stretch), form_rows(count, !from);
            scatter(begin + from, count, kept);
        }
    }

    // The factor by which a user's weights are scaled until their squares sum to at most 1
    double stretch_of(Index begin, Index n) const {
        double sums[kLanes] = {};
        for (Index k = 0; k < n; ++k) {
            const double raw = rows_of_tasks.of(task.tasks[begin + k])[dim + 1];
            sums[k % kLanes] += raw * raw;
        }
        const double norm = std::sqrt(sum_lanes(sums));
        return task.weight_norm / (norm > task.least_weight_norm ? norm : task.least_weight_norm);
    }

    INLINE void prefetch(Index k) const {
        const Index i = task.tasks[std::min(k, task.indptr[task.n_users] - 1)];
        const double* soon = rows_of_tasks.of(i);
        for (Index c = 0; c < dim + 2; c += 8) __builtin_prefetch(soon + c);
        const int64_t* later = by_task + i * width;
        for (Index c = 0; c < width; c += 8) __builtin_prefetch(later + c, 1);
        __builtin_prefetch(later + width - 1, 1);
    }

    // Fill the panels with a block of observations, zeros after them; whether any has a weight.
    bool gather(Index begin, Index count, double stretch) {
        bool any = false;
        const Index padded = round_up(count, kLanes);
        for (Index k = 0; k < count; ++k) {
            prefetch(begin + k + kAhead);
            const double* row = rows_of_tasks.of(task.tasks[begin + k]);
            right[k] = value_of(begin + k);
            UNROLL for (Index c = 0; c < dim; ++c) right[(c + 1) * block + k] = row[c];
            trust[k] = row[dim];
            weights[k] = task.weights ? weight_of(begin + k) : row[dim + 1] * stretch;
            any |= weights[k] != 0;
        }
        for (Index k = 0; k < padded; k += kLanes) {
            Lanes value = at_most(at_least(Lanes::load(&right[k]), task.low), task.high);
            ((value - task.centre) / task.unit).store(&right[k]);
        }
        for (Index k = count; k < padded; ++k) {
            for (Index c = 0; c <= dim; ++c) right[c * block + k] = 0;
            trust[k] = weights[k] = 0;
        }
        for (Index k = 0; k < padded; k += kLanes) {
            const Lanes here = Lanes::load(&trust[k]);
            for (Index c = 0; c < dim; ++c)
                (here * Lanes::load(&right[(c + 1) * block + k])).store(&left[c * block + k]);
        }
        return any;
    }

    // Factor base + Gram = L L' (L' in `factor`), L^-1 in `inverse`, and the solution; false if there is none.
    bool solve() {
        const Index sums_across = dim + 1;
        for (Index j = 0; j < dim; ++j) {
            double* row = &factor[j * across];
            for (Index i = j; i < dim; ++i)
                row[i] = sum_lanes(&grams[(i * sums_across + j + 1) * kLanes]) + task.base[i * dim + j];
            for (Index i = j / kLanes * kLanes; i < dim; i += kLanes) {
                Lanes s = Lanes::load(row + i);
                for (Index k = 0; k < j; ++k) s = s - factor[k * across + j] * Lanes::load(&factor[k * across + i]);
                s.store(row + i);
            }
            const double pivot = row[j];
            if (!(pivot > 0 && pivot < INFINITY)) return false;
            reciprocal[j] = 1 / std::sqrt(pivot);
            for (Index i = j / kLanes * kLanes; i < dim; i += kLanes) (Lanes::load(row + i) * reciprocal[j]).store(row + i);
        }
        invert();
        for (Index r = 0; r < dim; ++r) {
            double sum = 0;
            for (Index c = 0; c <= r; ++c)
                sum += inverse[r * across + c] * (sum_lanes(&grams[c * sums_across * kLanes]) + task.base_rhs[c]);
            middle[r] = sum;
        }
        for (Index c = 0; c < dim; ++c) {
            double sum = 0;
            for (Index r = c; r < dim; ++r) sum += inverse[r * across + c] * middle[r];
            solution[c] = sum;
        }
        return true;
    }

    void invert() {
        for (Index r = 0; r < dim; ++r) {
            for (Index c = 0; c <= r; c += kLanes) {
                Lanes sum = Lanes::all(0);
                for (Index k = c; k < r; ++k) sum = sum + factor[k * across + r] * Lanes::load(&inverse[k * across + c]);
                (sum * -reciprocal[r]).store(&inverse[r * across + c]);
            }
            inverse[r * across + r] = reciprocal[r];
            for (Index c = r + 1; c < across && c % kLanes; ++c) inverse[r * across + c] = 0;
        }
    }

    // Tastes without each observation in turn, the residuals there, and the rows that follow; sums over the block
    void form_rows(Index count, bool first) {
        for (Index k = 0; k < count; k += kLanes) {
            const Lanes label = Lanes::load(&right[k]), own_trust = Lanes::load(&trust[k]);
            const double* features = &right[block + k];
            Lanes residual = label - product(features, block, solution.get());
            Lanes leverage = Lanes::all(0);
            for (Index r = 0; r < dim; ++r) {
                Lanes z = Lanes::all(0);
                for (Index c = 0; c <= r; ++c) z = z + inverse[r * across + c] * Lanes::load(features + c * block);
                z.store(&scratch[r * kLanes]);
                leverage = leverage + z * z;
            }
            leverage = at_most(own_trust * leverage, task.most_leverage);
            const Lanes step = (own_trust * residual) / (1. - leverage);
            double* own = &scratch[dim * kLanes];
            for (Index c = 0; c < dim; ++c) {
                Lanes direction = Lanes::all(0);
                for (Index r = c; r < dim; ++r)
                    direction = direction + inverse[r * across + c] * Lanes::load(&scratch[r * kLanes]);
                (solution[c] - direction * step).store(own + c * kLanes);
            }
            if (task.starting) {
                residual = (label - Lanes::load(own)) - Lanes::load(features + block);
                start(own);
            } else {
                Lanes sum = Lanes::all(0);
                for (Index c = 0; c < dim; ++c) sum = sum + Lanes::load(features + c * block) * Lanes::load(own + c * kLanes);
                residual = label - sum;
            }
            add_rows(k, count - k, residual, own + kLanes);
        }
        if (latent) add_triangle(left.get(), latent, &tastes[block], 1, block, count, first, seconds.get(), latent);
    }

    INLINE Lanes product(const double* columns, Index stride, const double* with) const {
        Lanes sum = Lanes::all(0);
        for (Index c = 0; c < dim; ++c) sum = sum + Lanes::load(columns + c * stride) * with[c];
        return sum;
    }

    // Where item vectors are stand-ins: a factor of 1 on item biases, and a taste of public length
    void start(double* own) const {
        Lanes square = Lanes::all(0);
        for (Index c = 2; c < dim; ++c) square = square + Lanes::load(own + c * kLanes) * Lanes::load(own + c * kLanes);
        const Lanes stretch = task.start_norm / at_least(square_root(square), task.shortest_taste);
        Lanes::all(1).store(own + kLanes);
        for (Index c = 2; c < dim; ++c) (Lanes::load(own + c * kLanes) * stretch).store(own + c * kLanes);
    }

    void add_rows(Index k, Index left_over, Lanes residual, double* taste) {
        if (left_over < kLanes) {  // nothing beyond the last observation
            double held[kLanes];
            residual.store(held);
            for (Index lane = left_over; lane < kLanes; ++lane) {
                held[lane] = 0;
                for (Index c = 0; c < width; ++c) taste[c * kLanes + lane] = 0;
            }
            residual = Lanes::load(held);
        }
        const Lanes weight = Lanes::load(&weights[k]), weighted = weight * residual;
        Lanes square = Lanes::all(0);
        for (Index c = 0; c < width; ++c) {
            const Lanes here = Lanes::load(taste + c * kLanes), row = weighted * (here * task.scales[c]);
            here.store(&tastes[c * block + k]);
            row.store(&rows[c * block + k]);
            if (c) (weight * here).store(&left[(c - 1) * block + k]);
            square = square + row * row;
        }
        const Lanes slope = Lanes::load(taste);
        squares = squares + square;
        weight_sums = weight_sums + weight;
        factor_sums = factor_sums + weight * (slope * slope);
        residual_sums = residual_sums + weighted * weighted;
    }

    // The user's vote on shared moments, clipped and added to the total; false, and nothing added, if it is not finite.
    bool vote(double length) {
        const double weight_sum = sum_lanes(weight_sums);
        const double weight = weight_sum > task.least_weight ? weight_sum : task.least_weight;
        const double share = weight / task.full_vote, say = share < 1 ? share : 1;
        const double ratio = task.clip_norm / (length > task.shortest_part ? length : task.shortest_part);
        const double kept = ratio < 1 ? ratio : 1, level = say * kept;
        summary[0] = say;
        summary[1] = level * sum_lanes(factor_sums) / weight;
        summary[2] = say * sum_lanes(residual_sums);
        summary[3] = kept * kept * summary[2];
        const double common = level / weight / double(latent);
        for (Index r = 0, at = 0; r < latent; ++r)
            for (Index c = 0; c <= r; ++c, ++at)
                summary[4 + at] = sum_lanes(&seconds[(r * latent + c) * kLanes]) * (common / task.summary_scales[at]);
        double square = 0;
        for (Index c = 0; c < 4 + n_packed; ++c) square += summary[c] * summary[c];
        if (!(square < INFINITY)) return false;
        const double norm = std::sqrt(square), inner = task.summary_inner_norm, stretch = inner / (norm > inner ? norm : inner);
        for (Index c = 0; c < 4 + n_packed; ++c)
            total[c] = wrapped_sum(total[c], int64_t(summary[c] * stretch * task.summary_per_step));
        return true;
    }

    void scatter(Index begin, Index count, double kept) {
        int64_t whole[kLanes];
        for (Index k = 0; k < count; k += kLanes) {
            const Index here = std::min<Index>(kLanes, count - k);
            for (Index c = 0; c < width; ++c) {
                whole_steps(Lanes::load(&rows[c * block + k]) * kept * task.per_step, whole);
                for (Index lane = 0; lane < here; ++lane) add(by_task + Index(task.tasks[begin + k + lane]) * width + c, whole[lane]);
            }
        }
    }

    INLINE void add(int64_t* to, int64_t whole) const {
        if (shared) __atomic_fetch_add(to, whole, __ATOMIC_RELAXED);
        else *to = wrapped_sum(*to, whole);
    }
};

// Threads add up by themselves where there is room for it, else all in one place; whole numbers commute.
inline void rating_round(const RatingArguments& task, int threads, const std::vector<Index>& turns) {
    threads = int(std::clamp<Index>(Index(turns.size()) - 1, 1, threads));
    const Index size = task.n_tasks * (task.dim - 1);
    const bool shared = threads > 1 && (threads - 1) * size * Index(sizeof(int64_t)) > kMostCopies;
    const TaskRows rows(task, threads);
    std::vector<Buffer<int64_t>> copies;
    std::vector<std::unique_ptr<RatingWorker>> workers;
    for (int t = 0; t < threads; ++t) {
        if (t && !shared) copies.push_back(zeros<int64_t>(size));
        int64_t* by_task = t && !shared ? copies.back().get() : task.by_task;
        workers.push_back(std::make_unique<RatingWorker>(task, rows, by_task, shared));
    }
    in_parallel(threads, Index(turns.size()) - 1, [&](int thread, Index turn) {
        for (Index j = turns[turn]; j < turns[turn + 1]; ++j) workers[thread]->contribute(j);
    });
    constexpr Index at_once = 1 << 16;
    in_parallel(threads, (size + at_once - 1) / at_once, [&](int, Index part) {
        for (const Buffer<int64_t>& copy : copies)
            for (Index i = part * at_once; i < std::min((part + 1) * at_once, size); ++i)
                task.by_task[i] = wrapped_sum(task.by_task[i], copy[i]);
    });
    for (const auto& worker : workers)
        for (Index c = 0; c < 4 + worker->n_packed; ++c) task.total[c] = wrapped_sum(task.total[c], worker->total[c]);
}
