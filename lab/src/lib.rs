//! Experiments as data: scenarios, the runs they unfold into, results and statistics.
//!
//! A scenario file says what the networks are like, who transfers what over them and which
//! contenders are compared. A backend runs it; every backend returns the same columns.
