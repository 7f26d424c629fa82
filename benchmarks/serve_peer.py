"""The peer of the claim on serving: a plain FastAPI service around `implicit`, in a process of its own.

It is what the documentation of both shows: a model for the body, a function that recommends with
`recalculate_user=True`, run by uvicorn. Run as `python serve_peer.py VECTORS.npz PORT`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def application(vectors: Any, regularization: float, confidence: float) -> Any:
    """The service of these item vectors."""
    from fastapi import FastAPI
    from implicit.cpu.als import AlternatingLeastSquares
    from pydantic import BaseModel
    from scipy.sparse import csr_matrix

    class Asked(BaseModel):
        history: list[int]
        k: int = 10

    model = AlternatingLeastSquares(factors=vectors.shape[1], regularization=regularization, num_threads=1)
    model.item_factors, model.user_factors = vectors, np.zeros((1, vectors.shape[1]), np.float32)
    app = FastAPI()

    def recommend(asked: Asked) -> dict[str, list[dict[str, float]]]:
        codes = np.unique(asked.history)
        values = np.full(len(codes), confidence, np.float32)
        row = csr_matrix((values, codes, [0, len(codes)]), shape=(1, len(vectors)))
        items, scores = model.recommend(0, row, N=asked.k, recalculate_user=True)
        pairs = zip(items.tolist(), scores.tolist(), strict=True)
        return {"items": [{"item": item, "score": score} for item, score in pairs]}

    recommend.__annotations__ = {"asked": Asked}  # a class of this function, which FastAPI cannot find by its name
    app.post("/recommend")(recommend)
    return app


if __name__ == "__main__":
    import uvicorn

    stored = np.load(sys.argv[1])
    service = application(stored["vectors"], float(stored["regularization"]), float(stored["confidence"]))
    uvicorn.run(service, port=int(sys.argv[2]), log_level="error", access_log=False)
