"""On the performance of differentially private optimization with heavy-tail class imbalance: its study, in our form."""
