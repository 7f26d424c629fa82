// Weights of observations that follow from their tasks, each user's squares brought to a sum of at most 1, and their sums
// by task in whole steps.  Included once per instruction set.  task_counts.py says the same in NumPy.

// The factor by which a user's weights are scaled until their squares sum to at most 1
INLINE double stretch_of(const double* task_weights, const int32_t* tasks, Index n, double norm, double least_norm) {
    double sums[kLanes] = {};
    for (Index k = 0; k < n; ++k) {
        const double raw = task_weights[tasks[k]];
        sums[k % kLanes] += raw * raw;
    }
    const double found = std::sqrt(sum_lanes(sums));
    return norm / (found > least_norm ? found : least_norm);
}

inline void task_counts(const CountArguments& task, int threads, const std::vector<Index>& turns) {
    threads = int(std::clamp<Index>(Index(turns.size()) - 1, 1, threads));
    std::vector<Buffer<int64_t>> copies;
    for (int t = 1; t < threads; ++t) copies.push_back(zeros<int64_t>(task.n_tasks));
    in_parallel(threads, Index(turns.size()) - 1, [&](int thread, Index turn) {
        int64_t* const sums = thread ? copies[thread - 1].get() : task.sums;
        for (Index j = turns[turn]; j < turns[turn + 1]; ++j) {
            const int32_t* tasks = task.tasks + task.indptr[j];
            const Index n = task.indptr[j + 1] - task.indptr[j];
            const double stretch = stretch_of(task.task_weights, tasks, n, task.weight_norm, task.least_weight_norm);
            for (Index k = 0; k < n; ++k)
                sums[tasks[k]] = wrapped_sum(sums[tasks[k]], int64_t(task.task_weights[tasks[k]] * stretch * task.per_step));
        }
    });
    for (const Buffer<int64_t>& copy : copies)
        for (Index i = 0; i < task.n_tasks; ++i) task.sums[i] = wrapped_sum(task.sums[i], copy[i]);
}
