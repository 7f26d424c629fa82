// Which rows of a user are held out for votes: those with the smallest hashes of (user, task).  Included once per
// instruction set.  privacy/contributions/votes.py says the same in NumPy.

// Marks rows of users first .. last.  A row takes part if its hash, without its last 11 bits, is below `rows_below`; so
// does a user by `users_below`.  The smallest `most` are held out, and never all rows of a user.
inline void hold_out(const uint32_t* key, const HeldOutArguments& task, Index first, Index last) {
    std::vector<std::pair<uint64_t, Index>> low;
    std::vector<uint64_t> points, hashes;
    for (Index j = first; j < last; ++j) {
        const Index begin = task.indptr[j], n = task.indptr[j + 1] - begin, most = std::min(task.most, n - 1);
        if (most < 1 || (task.users[j] >> 11) >= task.users_below) continue;
        points.resize(2 * n);
        hashes.resize(n);
        for (Index k = 0; k < n; ++k) points[2 * k] = task.users[j], points[2 * k + 1] = uint64_t(int64_t(task.tasks[begin + k]));
        fill_keyed(key, 0, (n + kBlocks - 1) / kBlocks, n, points.data(), hashes.data());
        low.clear();
        for (Index k = 0; k < n; ++k)
            if ((hashes[k] >> 11) < task.rows_below) low.emplace_back(hashes[k], begin + k);
        std::sort(low.begin(), low.end());
        for (Index k = 0; k < std::min(most, Index(low.size())); ++k) task.held[low[k].second] = 1;
    }
}
