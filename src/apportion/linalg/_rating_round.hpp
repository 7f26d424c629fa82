// One round on ratings.  Per user: a ridge regression of the labels on (1, item bias, item vector), its solutions
// without each observation in turn (Sherman-Morrison), the row that each observation contributes to its task and the
// user's vote on shared moments, both clipped, cut off to whole steps and added up.  Included once per instruction set.
//
// rating_reference.py says the same in NumPy, operation by operation; keep the two alike.
//
// Observations lie side by side, eight to a group: panel[group][c] holds the c-th number of each of them, and all
// arithmetic on observations is done for the eight at a time.  A user with more observations than fit the panels is
// worked through three times, with the same numbers.

constexpr int kTileColumns = KERNEL_VECTOR_BYTES == 64 ? 8 : KERNEL_VECTOR_BYTES == 32 ? 3 : 1;  // fit the registers
constexpr Index kBlockBytes = 262144;  // of panels, near the processor
constexpr Index kMostAhead = 256;     // observations of the next user that memory is asked for early

// sums[r][c] (+)= left[r] * right[c], eight sums each, for R rows and C columns, over some groups of observations
template <int R, int C>
INLINE void add_products(const double* left, Index left_step, const double* right, Index right_step, Index groups,
                         bool first, double* sums, Index across) {
    Lanes sum[R][C];
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int c = 0; c < C; ++c)
            sum[r][c] = first ? Lanes::all(0) : Lanes::load(sums + (r * across + c) * kLanes);
    for (Index g = 0; g < groups; ++g, left += left_step, right += right_step) {
        Lanes x[R];
        UNROLL for (int r = 0; r < R; ++r) x[r] = Lanes::load(left + r * kLanes);
        UNROLL for (int c = 0; c < C; ++c) {
            const Lanes y = Lanes::load(right + c * kLanes);
            UNROLL for (int r = 0; r < R; ++r) sum[r][c] = sum[r][c] + x[r] * y;
        }
    }
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int c = 0; c < C; ++c) sum[r][c].store(sums + (r * across + c) * kLanes);
}

template <int R, int C, typename... Rest>
INLINE void add_some_products(int columns, Rest... rest) {
    if constexpr (C > 1)
        if (columns < C) return add_some_products<R, C - 1>(columns, rest...);
    add_products<R, C>(rest...);
}

// The same for n_rows rows and the first r + beyond columns of row r, or some more
INLINE void add_triangle(const double* left, Index left_step, Index n_rows, const double* right, Index right_step,
                         Index beyond, Index groups, bool first, double* sums, Index across) {
    UNROLL for (Index r = 0; r < n_rows; r += 2) {
        const Index rows = std::min<Index>(2, n_rows - r), columns = std::min(r + rows - 1 + beyond, across);
        UNROLL for (Index c = 0; c < columns; c += kTileColumns) {
            const int width = int(std::min<Index>(kTileColumns, columns - c));
            const double *from = left + r * kLanes, *with = right + c * kLanes;
            double* to = sums + (r * across + c) * kLanes;
            if (rows == 2)
                add_some_products<2, kTileColumns>(width, from, left_step, with, right_step, groups, first, to, across);
            else
                add_some_products<1, kTileColumns>(width, from, left_step, with, right_step, groups, first, to, across);
        }
    }
}

// What all threads read: rows of (features, trust, weight, weight of its vector) of tasks, each from the start of a cache line
struct TaskRows {
    Index stride;
    Buffer<double> rows;

    TaskRows(const RatingArguments& task, int threads)
        : stride(round_up(task.dim + 3, 8)), rows(zeros<double>(task.n_tasks * stride)) {
        constexpr Index at_once = 1024;
        in_parallel(threads, (task.n_tasks + at_once - 1) / at_once, [&](int, Index part) {
            for (Index i = part * at_once; i < std::min((part + 1) * at_once, task.n_tasks); ++i) {
                double* to = &rows[i * stride];
                std::copy_n(task.features + i * task.dim, task.dim, to);
                to[task.dim] = task.trust[i];
                to[task.dim + 1] = task.task_weights ? task.task_weights[i] : 0;
                to[task.dim + 2] = task.vector_weights[i];
            }
        });
    }
};

// One thread's working memory and the steps it takes.  Dim is the number of features where the compiler is to know it,
// so that it unrolls the loops over them; else 0.
template <int Dim>
struct RatingWorker {
    const RatingArguments& task;
    const double* const task_rows;
    int64_t* const by_task;  // this thread's own sums, or those of all
    const bool shared;
    const Index dim = task.dim;
    const Index most_groups = std::clamp<Index>(kBlockBytes / (4 * 8 * kLanes * dim), 8, 512);
    const Index n_summary = 5 + (dim - 2) * (dim - 1) / 2;
    Buffer<double> right = zeros<double>(most_groups * (dim + 4) * kLanes);  // trust, weight, label, features, of vector
    Buffer<double> left = zeros<double>(most_groups * dim * kLanes);         // trust times features
    Buffer<double> tastes = zeros<double>(most_groups * 2 * dim * kLanes);   // tastes, then weight times taste
    Buffer<double> rows = zeros<double>(most_groups * dim * kLanes);
    Buffer<double> grams = zeros<double>(dim * (dim + 1) * kLanes);
    Buffer<double> seconds = zeros<double>(dim * dim * kLanes);
    Buffer<double> factor = zeros<double>(dim * across()), inverse = zeros<double>(dim * across());
    Buffer<double> vectors = zeros<double>(4 * dim);
    Buffer<double> scratch = zeros<double>(2 * dim * kLanes);
    Buffer<double> summary = zeros<double>(n_summary);
    Buffer<int64_t> total = zeros<int64_t>(n_summary);
    Lanes squares, weight_sums, factor_sums, residual_sums, mean_sums;

    RatingWorker(const RatingArguments& task, const TaskRows& task_rows, int64_t* by_task, bool shared)
        : task(task), task_rows(task_rows.rows.get()), by_task(by_task), shared(shared) {}

    INLINE Index n_features() const { return Dim ? Dim : dim; }
    INLINE Index across() const { return round_up(n_features(), kLanes); }  // of a row of `factor` and `inverse`
    INLINE Index row_step() const { return round_up(n_features() + 3, kLanes); }
    INLINE Index group_step() const { return (n_features() + 4) * kLanes; }

    void contribute(Index user) {
        ask_for(user + 1);
        const Index begin = task.indptr[user], n = task.indptr[user + 1] - begin, most = most_groups * kLanes;
        if (!n) return;
        const double stretch = task.weights ? 1 : stretch_of(task.task_weights, task.tasks + begin, n, task.weight_norm,
                                                            task.least_weight_norm);
        bool takes_part = false;
        for (Index from = 0; from < n; from += most) {
            const Index count = std::min(most, n - from);
            takes_part |= gather(begin + from, count, stretch);
            add_grams(count, !from);
        }
        if (!takes_part || !solve()) return;
        squares = weight_sums = factor_sums = residual_sums = mean_sums = Lanes::all(0);
        for (Index from = 0; from < n; from += most) {
            const Index count = std::min(most, n - from);
            if (n > most) gather(begin + from, count, stretch);
            form_rows(count);
            add_seconds(count, !from);
        }
        const double length = std::sqrt(sum_lanes(squares));
        if (!(length < INFINITY) || !vote(length)) return;
        const double kept = task.inner_norm / (length > task.inner_norm ? length : task.inner_norm);
        for (Index from = 0; from < n; from += most) {
            const Index count = std::min(most, n - from);
            if (n > most) gather(begin + from, count, stretch), form_rows(count);
            scatter(begin + from, count, kept);
        }
    }

    // Bring what the next user will read and add to nearer, while this one is worked on.
    INLINE void ask_for(Index user) const {
        const Index dim = n_features();
        if (user >= task.n_users) return;
        const Index begin = task.indptr[user], end = std::min(task.indptr[user + 1], begin + kMostAhead);
        for (Index k = begin; k < end; ++k) {
            const double* soon = task_rows + task.tasks[k] * row_step();
            UNROLL for (Index c = 0; c < dim + 3; c += 8) __builtin_prefetch(soon + c, 0, 2);
            const int64_t* later = by_task + task.tasks[k] * (dim - 1);
            UNROLL for (Index c = 0; c < dim - 1; c += 8) __builtin_prefetch(later + c, 1, 2);
        }
    }

    static INLINE double number_of(const void* numbers, int doubles, Index k) {
        return doubles ? static_cast<const double*>(numbers)[k] : static_cast<const float*>(numbers)[k];
    }
    INLINE double value_of(Index k) const {
        return number_of(task.values, task.double_values, k);
    }
    INLINE double weight_of(Index k) const {
        return number_of(task.weights, task.double_weights, k);
    }

    // Where in a group of the panel the c-th number of a task's row goes
    INLINE Index place_of(Index c) const {
        const Index dim = n_features();
        return (c < dim ? c + 3 : c < dim + 2 ? c - dim : dim + 3) * kLanes;
    }

    // The rows of the tasks of eight observations, side by side
    INLINE void gather_eight(Index begin, double* group) const {
        const Index dim = n_features();
        UNROLL for (Index lane = 0; lane < kLanes; lane += kPart)
            UNROLL for (Index c = 0; c < dim + 3; c += kPart) {
                Part block[kPart];
                UNROLL for (int i = 0; i < kPart; ++i)
                    __builtin_memcpy(&block[i], task_rows + task.tasks[begin + lane + i] * row_step() + c, sizeof(Part));
                transpose(block);
                UNROLL for (int i = 0; i < kPart; ++i)
                    if (c + i < dim + 3) __builtin_memcpy(group + place_of(c + i) + lane, &block[i], sizeof(Part));
            }
    }

    // Fill the panels with some observations, zeros after the last; whether any has a weight.
    bool gather(Index begin, Index count, double stretch) {
        const Index dim = n_features();
        bool any = false;
        double *group = right.get(), *trusted = left.get();
        for (Index k = 0; k < count; k += kLanes, group += group_step(), trusted += dim * kLanes) {
            const Index here = std::min<Index>(kLanes, count - k);
            if (here < kLanes) std::fill_n(group, group_step(), 0.);
            double values[kLanes] = {};
            if (here == kLanes) gather_eight(begin + k, group);
            for (Index lane = 0; lane < here; ++lane) {
                const Index at = begin + k + lane;
                if (here < kLanes) {
                    const double* row = task_rows + task.tasks[at] * row_step();
                    UNROLL for (Index c = 0; c < dim + 3; ++c) group[place_of(c) + lane] = row[c];
                }
                double& weight = group[kLanes + lane];
                weight = task.weights ? weight_of(at) : weight * stretch;
                values[lane] = value_of(at);
                any |= weight != 0;
            }
            Lanes label = at_most(at_least(Lanes::load(values), task.low), task.high);
            ((label - task.centre) / task.unit).store(group + 2 * kLanes);
            for (Index lane = here; lane < kLanes; ++lane) group[2 * kLanes + lane] = 0;
            const Lanes trust = Lanes::load(group);
            UNROLL for (Index c = 0; c < dim; ++c)
                (trust * Lanes::load(group + (c + 3) * kLanes)).store(trusted + c * kLanes);
        }
        return any;
    }

    void add_grams(Index count, bool first) {
        const Index dim = n_features();
        add_triangle(left.get(), dim * kLanes, dim, right.get() + 2 * kLanes, group_step(), 2,
                     (count + kLanes - 1) / kLanes, first, grams.get(), dim + 1);
    }

    void add_seconds(Index count, bool first) {
        const Index dim = n_features();
        if (dim > 2)
            add_triangle(tastes.get() + dim * kLanes, 2 * dim * kLanes, dim - 2, tastes.get() + kLanes, 2 * dim * kLanes,
                         1, (count + kLanes - 1) / kLanes, first, seconds.get(), dim - 2);
    }

    // Factor base + Gram = L L' (L' in `factor`), L^-1 in `inverse`, and the solution; false if there is none.
    bool solve() {
        const Index dim = n_features();
        double *upper = factor.get(), *reciprocal = vectors.get() + dim;
        const double* sums = grams.get();
        const Index wide = across();
        for (Index j = 0; j < dim; ++j) {
            double* row = upper + j * wide;
            for (Index i = j; i < dim; ++i)
                row[i] = sum_lanes(sums + (i * (dim + 1) + j + 1) * kLanes) + task.base[i * dim + j];
            for (Index i = j / kLanes * kLanes; i < dim; i += kLanes) {
                Lanes s = Lanes::load(row + i);
                for (Index k = 0; k < j; ++k) s = s - upper[k * wide + j] * Lanes::load(upper + k * wide + i);
                s.store(row + i);
            }
            const double pivot = row[j];
            if (!(pivot > 0 && pivot < INFINITY)) return false;
            reciprocal[j] = 1 / std::sqrt(pivot);
            for (Index i = j / kLanes * kLanes; i < dim; i += kLanes)
                (Lanes::load(row + i) * reciprocal[j]).store(row + i);
        }
        invert(upper, reciprocal, inverse.get());
        substitute(inverse.get(), vectors.get());
        return true;
    }

    INLINE void invert(const double* upper, const double* reciprocal, double* lower) const {
        const Index dim = n_features();
        const Index wide = across();
        for (Index r = 0; r < dim; ++r) {
            double* row = lower + r * wide;
            for (Index c = 0; c <= r; c += kLanes) {
                Lanes sum = Lanes::all(0);
                for (Index k = c; k < r; ++k) sum = sum + upper[k * wide + r] * Lanes::load(lower + k * wide + c);
                (sum * -reciprocal[r]).store(row + c);
            }
            row[r] = reciprocal[r];
            for (Index c = r + 1; c < wide; ++c) row[c] = 0;
        }
    }

    // solution <- L^-T L^-1 (base_rhs + moment)
    INLINE void substitute(const double* lower, double* solution) const {
        const Index dim = n_features();
        double *middle = solution + 2 * dim, *rhs = solution + 3 * dim;
        const Index wide = across();
        for (Index r = 0; r < dim; ++r) {
            rhs[r] = sum_lanes(grams.get() + r * (dim + 1) * kLanes) + task.base_rhs[r];
            double sum = lower[r * wide] * rhs[0];
            for (Index c = 1; c <= r; ++c) sum += lower[r * wide + c] * rhs[c];
            middle[r] = sum;
        }
        for (Index c = 0; c < dim; ++c) {
            double sum = lower[c * wide + c] * middle[c];
            for (Index r = c + 1; r < dim; ++r) sum += lower[r * wide + c] * middle[r];
            solution[c] = sum;
        }
    }

    // Tastes without each observation in turn, the residuals there, and the rows that follow
    void form_rows(Index count) {
        const Index dim = n_features();
        const double *group = right.get(), *lower = inverse.get(), *solution = vectors.get();
        const Index wide = across();
        double *taste = tastes.get(), *row = rows.get();
        double fixed[Dim ? 2 * Dim * kLanes : 1];
        double *half = Dim ? fixed : scratch.get(), *own = half + dim * kLanes;
        for (Index k = 0; k < count; k += kLanes) {
            const Lanes trust = Lanes::load(group), label = Lanes::load(group + 2 * kLanes);
            const double* features = group + 3 * kLanes;
            Lanes sum = Lanes::load(features) * solution[0];
            UNROLL for (Index c = 1; c < dim; ++c) sum = sum + Lanes::load(features + c * kLanes) * solution[c];
            Lanes residual = label - sum, leverage = Lanes::all(0);
            UNROLL for (Index r = 0; r < dim; ++r) {
                Lanes z = lower[r * wide] * Lanes::load(features);
                UNROLL for (Index c = 1; c <= r; ++c) z = z + lower[r * wide + c] * Lanes::load(features + c * kLanes);
                z.store(half + r * kLanes);
                leverage = leverage + z * z;
            }
            leverage = at_most(trust * leverage, task.most_leverage);
            const Lanes step = (trust * residual) / (1. - leverage);
            UNROLL for (Index c = 0; c < dim; ++c) {
                Lanes direction = lower[c * wide + c] * Lanes::load(half + c * kLanes);
                UNROLL for (Index r = c + 1; r < dim; ++r)
                    direction = direction + lower[r * wide + c] * Lanes::load(half + r * kLanes);
                (solution[c] - direction * step).store(own + c * kLanes);
            }
            if (task.starting) {
                residual = (label - Lanes::load(own)) - Lanes::load(features + kLanes);
                start(own);
            } else {
                sum = Lanes::load(features) * Lanes::load(own);
                UNROLL for (Index c = 1; c < dim; ++c)
                    sum = sum + Lanes::load(features + c * kLanes) * Lanes::load(own + c * kLanes);
                residual = label - sum;
            }
            if (count - k < kLanes) residual = only(count - k, residual, own);
            const Lanes of_vector = Lanes::load(group + (dim + 3) * kLanes);
            add_rows(Lanes::load(group + kLanes), of_vector, residual, own + kLanes, taste, row);
            group += group_step(), taste += 2 * dim * kLanes, row += (dim - 1) * kLanes;
        }
    }

    // Where item vectors are stand-ins: a factor of 1 on item biases, and a taste of public length
    void start(double* own) const {
        const Index dim = n_features();
        Lanes square = Lanes::all(0);
        for (Index c = 2; c < dim; ++c) square = square + Lanes::load(own + c * kLanes) * Lanes::load(own + c * kLanes);
        const Lanes stretch = task.start_norm / at_least(square_root(square), task.shortest_taste);
        Lanes::all(1).store(own + kLanes);
        for (Index c = 2; c < dim; ++c) (Lanes::load(own + c * kLanes) * stretch).store(own + c * kLanes);
    }

    // Zeros after the last observation
    Lanes only(Index here, Lanes residual, double* own) const {
        double held[kLanes];
        residual.store(held);
        for (Index lane = here; lane < kLanes; ++lane) {
            held[lane] = 0;
            for (Index c = 0; c < dim; ++c) own[c * kLanes + lane] = 0;
        }
        return Lanes::load(held);
    }

    INLINE void add_rows(Lanes weight, Lanes of_vector, Lanes residual, const double* own, double* taste, double* row) {
        const Index dim = n_features();
        const Lanes weighted = weight * residual, slope = Lanes::load(own);
        Lanes square = Lanes::all(0);
        UNROLL for (Index c = 0; c < dim - 1; ++c) {
            const Lanes here = Lanes::load(own + c * kLanes), whole = weighted * (here * task.scales[c]);
            const Lanes product = c ? whole * of_vector : whole;
            product.store(row + c * kLanes);
            here.store(taste + c * kLanes);
            if (c) (weight * here).store(taste + (dim + c - 1) * kLanes);
            square = square + product * product;
        }
        squares = squares + square;
        weight_sums = weight_sums + weight;
        factor_sums = factor_sums + weight * (slope * slope);
        residual_sums = residual_sums + weighted * weighted;
        mean_sums = mean_sums + weighted;
    }

    // The user's vote on shared moments, clipped and added to the total; false, and nothing added, if it is not finite.
    bool vote(double length) {
        const Index dim = n_features();
        const double weight_sum = sum_lanes(weight_sums);
        const double weight = weight_sum > task.least_weight ? weight_sum : task.least_weight;
        const double share = weight / task.full_vote, say = share < 1 ? share : 1;
        const double ratio = task.clip_norm / (length > task.shortest_part ? length : task.shortest_part);
        const double kept = ratio < 1 ? ratio : 1, level = say * kept;
        double* const votes = summary.get();
        votes[0] = say;
        votes[1] = level * sum_lanes(factor_sums) / weight;
        votes[2] = say * sum_lanes(residual_sums);
        votes[3] = kept * kept * votes[2];
        votes[4] = say * sum_lanes(mean_sums) / weight;
        const Index latent = dim - 2;
        const double common = level / weight / double(std::max<Index>(latent, 1));
        for (Index r = 0, at = 0; r < latent; ++r)
            for (Index c = 0; c <= r; ++c, ++at)
                votes[5 + at] = sum_lanes(&seconds[(r * latent + c) * kLanes]) * (common / task.summary_scales[at]);
        double square = 0;
        for (Index c = 0; c < n_summary; ++c) square += votes[c] * votes[c];
        if (!(square < INFINITY)) return false;
        const double norm = std::sqrt(square), inner = task.summary_inner_norm;
        const double stretch = inner / (norm > inner ? norm : inner);
        for (Index c = 0; c < n_summary; ++c)
            total[c] = wrapped_sum(total[c], int64_t(votes[c] * stretch * task.summary_per_step));
        return true;
    }

    // The rows of eight observations, added to their tasks; no user has a task twice
    INLINE void add_eight(Index begin, const int64_t* whole) const {
        const Index width = n_features() - 1;
        UNROLL for (Index c = 0; c + kPart <= width; c += kPart)
            UNROLL for (Index lane = 0; lane < kLanes; lane += kPart) {
                Part block[kPart];
                UNROLL for (int i = 0; i < kPart; ++i)
                    __builtin_memcpy(&block[i], whole + (c + i) * kLanes + lane, sizeof(Part));
                transpose(block);
                UNROLL for (int i = 0; i < kPart; ++i) {
                    int64_t* to = by_task + task.tasks[begin + lane + i] * width + c;
                    BitsPart sums;
                    __builtin_memcpy(&sums, to, sizeof(sums));
                    sums += (BitsPart)block[i];
                    __builtin_memcpy(to, &sums, sizeof(sums));
                }
            }
        UNROLL for (Index lane = 0; lane < kLanes; ++lane) {
            int64_t* to = by_task + task.tasks[begin + lane] * width;
            UNROLL for (Index c = width / kPart * kPart; c < width; ++c)
                to[c] = wrapped_sum(to[c], whole[c * kLanes + lane]);
        }
    }

    void scatter(Index begin, Index count, double kept) const {
        const Index dim = n_features();
        const double* row = rows.get();
        int64_t fixed[Dim ? Dim * kLanes : 1];
        int64_t* whole = Dim ? fixed : reinterpret_cast<int64_t*>(scratch.get());
        for (Index k = 0; k < count; k += kLanes, row += (dim - 1) * kLanes) {
            UNROLL for (Index c = 0; c < dim - 1; ++c)
                whole_steps(Lanes::load(row + c * kLanes) * kept * task.per_step, whole + c * kLanes);
            const Index here = std::min<Index>(kLanes, count - k);
            if (here == kLanes && !shared) {
                add_eight(begin + k, whole);
                continue;
            }
            for (Index lane = 0; lane < here; ++lane) {
                int64_t* to = by_task + task.tasks[begin + k + lane] * (dim - 1);
                if (shared)
                    for (Index c = 0; c < dim - 1; ++c)
                        __atomic_fetch_add(to + c, whole[c * kLanes + lane], __ATOMIC_RELAXED);
                else
                    UNROLL for (Index c = 0; c < dim - 1; ++c) to[c] = wrapped_sum(to[c], whole[c * kLanes + lane]);
            }
        }
    }
};

// Threads add up by themselves where there is room for it, else all in one place; whole numbers commute.
template <int Dim>
void rating_round_of(const RatingArguments& task, int threads, const std::vector<Index>& turns) {
    const Index size = task.n_tasks * (task.dim - 1);
    const bool shared = threads > 1 && (threads - 1) * size * Index(sizeof(int64_t)) > task.most_copies;
    const TaskRows rows(task, threads);
    std::vector<Buffer<int64_t>> copies;
    std::vector<std::unique_ptr<RatingWorker<Dim>>> workers;
    for (int t = 0; t < threads; ++t) {
        if (t && !shared) copies.push_back(zeros<int64_t>(size));
        int64_t* by_task = t && !shared ? copies.back().get() : task.by_task;
        workers.push_back(std::make_unique<RatingWorker<Dim>>(task, rows, by_task, shared));
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
        for (Index c = 0; c < worker->n_summary; ++c) task.total[c] = wrapped_sum(task.total[c], worker->total[c]);
}

inline void rating_round(const RatingArguments& task, int threads, const std::vector<Index>& turns) {
    threads = int(std::clamp<Index>(Index(turns.size()) - 1, 1, threads));
    if (task.dim == 2) rating_round_of<2>(task, threads, turns);         // biases alone
    else if (task.dim == 10) rating_round_of<10>(task, threads, turns);  // the default dimension
    else rating_round_of<0>(task, threads, turns);
}
