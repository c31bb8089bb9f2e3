//! What carries packets of unmodified hosts over a multipath connection.
