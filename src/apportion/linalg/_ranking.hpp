// Products of rows with rows, each added up in the order of the columns, and the largest of them per row.  Included once
// per instruction set.  Numbers of independent pairs are computed side by side, so that every set gives the same bits.

template <typename T>
struct Tile {
    typedef T Vector __attribute__((vector_size(KERNEL_VECTOR_BYTES)));
    static constexpr int lanes = KERNEL_VECTOR_BYTES / sizeof(T);
    static constexpr int wide = KERNEL_VECTOR_BYTES == 64 ? 4 : 2;   // vectors of columns
    static constexpr int rows = KERNEL_VECTOR_BYTES == 64 ? 6 : 4;   // rows * wide sums fit the registers
    static constexpr int columns = lanes * wide;                     // of a panel
    static constexpr Index panels_near = std::max<Index>(1, 16384 / columns / 16);  // that stay near together
};

INLINE bool any_above(const Tile<float>::Vector& x, float bound) {
#if KERNEL_VECTOR_BYTES == 64
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(bound), _CMP_GT_OQ) != 0;
#elif KERNEL_VECTOR_BYTES == 32
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(bound), _CMP_GT_OQ)) != 0;
#else
    return x[0] > bound || x[1] > bound || x[2] > bound || x[3] > bound;
#endif
}

INLINE bool any_above(const Tile<double>::Vector& x, double bound) {
    for (int i = 0; i < Tile<double>::lanes; ++i)
        if (x[i] > bound) return true;
    return false;
}

// right's rows in panels of so many: panel[p][c][i] = right[p * columns + i][c], zeros after the last
template <typename T>
struct Panels {
    using Shape = Tile<T>;
    const Index dim, n_columns, n_panels;
    Buffer<T> values;

    Panels(const RankingArguments& task, int threads)
        : dim(task.dim), n_columns(task.n_right), n_panels((task.n_right + Shape::columns - 1) / Shape::columns),
          values(zeros<T>(n_panels * Shape::columns * task.dim)) {
        const T* right = static_cast<const T*>(task.right);
        in_parallel(threads, n_panels, [&](int, Index p) {
            T* panel = values.get() + p * Shape::columns * dim;
            const Index here = std::min<Index>(Shape::columns, n_columns - p * Shape::columns);
            for (Index i = 0; i < here; ++i)
                for (Index c = 0; c < dim; ++c)
                    panel[c * Shape::columns + i] = right[(p * Shape::columns + i) * dim + c];
        });
    }
    INLINE const T* of(Index p) const { return values.get() + p * Shape::columns * dim; }
};

// Products of R rows of left with the columns of a panel, plus the offset
template <int R, typename T>
INLINE void products(const T* left, const T* panel, Index dim, T offset,
                     typename Tile<T>::Vector (*sum)[Tile<T>::wide]) {
    using V = typename Tile<T>::Vector;
    constexpr int wide = Tile<T>::wide, lanes = Tile<T>::lanes;
    V total[R][wide] = {};
    for (Index c = 0; c < dim; ++c, panel += Tile<T>::columns) {
        V x[wide];
        UNROLL for (int j = 0; j < wide; ++j) __builtin_memcpy(&x[j], panel + j * lanes, sizeof(V));
        UNROLL for (int r = 0; r < R; ++r)
            UNROLL for (int j = 0; j < wide; ++j) total[r][j] += left[r * dim + c] * x[j];
    }
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int j = 0; j < wide; ++j) sum[r][j] = total[r][j] + offset;
}

// Calls then(r, sums of the row) for each of `count` rows; the compiler knows how many there are.
template <int R, typename T, typename Then>
INLINE void for_products(Index count, const T* left, const T* panel, Index dim, T offset, const Then& then) {
    if constexpr (R > 1)
        if (count < R) return for_products<R - 1>(count, left, panel, dim, offset, then);
    typename Tile<T>::Vector sum[R][Tile<T>::wide];
    products<R>(left, panel, dim, offset, sum);
    UNROLL for (int r = 0; r < R; ++r) then(r, sum[r]);
}

// All products, [n_left, n_right]
template <typename T>
void all_products(const RankingArguments& task, int threads) {
    using Shape = Tile<T>;
    const Panels<T> panels(task, threads);
    const T* left = static_cast<const T*>(task.left);
    T* scores = static_cast<T*>(task.scores);
    in_parallel(threads, (task.n_left + kRowsAtOnce - 1) / kRowsAtOnce, [&](int, Index part) {
        const Index last = std::min((part + 1) * kRowsAtOnce, task.n_left);
        for (Index near = 0; near < panels.n_panels; near += Shape::panels_near)
            for (Index row = part * kRowsAtOnce; row < last; row += Shape::rows)
                for (Index p = near; p < std::min(near + Shape::panels_near, panels.n_panels); ++p)
                    for_products<Shape::rows>(
                        last - row, left + row * task.dim, panels.of(p), task.dim, T(task.offset),
                        [&](int r, const typename Shape::Vector* sums) {
                            const Index first = p * Shape::columns;
                            const Index n = std::min<Index>(Shape::columns, task.n_right - first);
                            std::memcpy(scores + (row + r) * task.n_right + first, sums, n * sizeof(T));
                        });
    });
}

// The best of one row so far: a heap with the worst of them on top; equals are in the order of their columns.
template <typename T>
struct Best {
    struct Entry { T score; int32_t column; };
    std::vector<Entry> heap;
    T threshold;

    static bool better(const Entry& a, const Entry& b) {
        return a.score > b.score || (a.score == b.score && a.column < b.column);
    }
    void clear() { heap.clear(), threshold = -std::numeric_limits<T>::infinity(); }

    void offer(T score, int32_t column, size_t depth) {  // columns come in ascending order
        if (heap.size() == depth) {
            std::pop_heap(heap.begin(), heap.end(), better);
            heap.pop_back();
        }
        heap.push_back({score, column});
        std::push_heap(heap.begin(), heap.end(), better);
        if (heap.size() == depth) threshold = heap.front().score;
    }
    void write(Index depth, int32_t* columns, T* scores) {
        std::sort_heap(heap.begin(), heap.end(), better);
        for (Index i = 0; i < depth; ++i) {
            const bool there = i < Index(heap.size());
            columns[i] = there ? heap[i].column : -1;
            scores[i] = there ? heap[i].score : -std::numeric_limits<T>::infinity();
        }
    }
};

// One thread's rows at hand, and the best of each
template <typename T>
struct Ranker {
    using Shape = Tile<T>;
    const RankingArguments& task;
    const Panels<T>& panels;
    std::vector<Best<T>> best = std::vector<Best<T>>(kRowsAtOnce);

    Ranker(const RankingArguments& task, const Panels<T>& panels) : task(task), panels(panels) {}

    void rank(Index first, Index last) {
        for (Best<T>& row : best) row.clear();
        for (Index near = 0; near < panels.n_panels; near += Shape::panels_near)
            for (Index row = first; row < last; row += Shape::rows)
                for (Index p = near; p < std::min(near + Shape::panels_near, panels.n_panels); ++p)
                    for_products<Shape::rows>(
                        last - row, static_cast<const T*>(task.left) + row * task.dim, panels.of(p), task.dim,
                        T(task.offset),
                        [&](int r, const typename Shape::Vector* sums) { look_at(row + r, first, p, sums); });
        for (Index row = first; row < last; ++row)
            best[row - first].write(task.depth, task.columns + row * task.depth,
                                    static_cast<T*>(task.scores) + row * task.depth);
    }

    INLINE void look_at(Index row, Index first, Index p, const typename Shape::Vector* sums) {
        Best<T>& here = best[row - first];
        typename Shape::Vector most = sums[0];
        UNROLL for (int j = 1; j < Shape::wide; ++j) most = sums[j] > most ? sums[j] : most;
        if (any_above(most, here.threshold)) choose(row, p * Shape::columns, sums, here);
    }

    __attribute__((noinline)) void choose(Index row, Index first, const typename Shape::Vector* sums,
                                          Best<T>& here) const {
        T scores[Shape::columns];
        std::memcpy(scores, sums, sizeof scores);
        const Index n = std::min<Index>(Shape::columns, task.n_right - first);
        for (Index i = 0; i < n; ++i)
            if (scores[i] > here.threshold && !left_out(row, int32_t(first + i)))
                here.offer(scores[i], int32_t(first + i), size_t(task.depth));
    }

    bool left_out(Index row, int32_t column) const {
        if (!task.indptr) return false;
        const int32_t *first = task.excluded + task.indptr[row], *last = task.excluded + task.indptr[row + 1];
        return std::binary_search(first, last, column);
    }
};

template <typename T>
void top_products(const RankingArguments& task, int threads) {
    const Panels<T> panels(task, threads);
    std::vector<std::unique_ptr<Ranker<T>>> rankers;
    for (int t = 0; t < threads; ++t) rankers.push_back(std::make_unique<Ranker<T>>(task, panels));
    in_parallel(threads, (task.n_left + kRowsAtOnce - 1) / kRowsAtOnce, [&](int thread, Index part) {
        rankers[thread]->rank(part * kRowsAtOnce, std::min((part + 1) * kRowsAtOnce, task.n_left));
    });
}

inline void ranking(const RankingArguments& task, int threads, bool doubles) {
    if (task.depth)
        doubles ? top_products<double>(task, threads) : top_products<float>(task, threads);
    else
        doubles ? all_products<double>(task, threads) : all_products<float>(task, threads);
}
