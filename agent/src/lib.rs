//! What one host of a laboratory does: carries the flows of a run and measures them.
